// The sink of a step that is not private: adds samples' gradients into one flat buffer per unit.
#pragma once

#include <functional>
#include <vector>

#include "nn/block.h"
#include "nn/grad_sink.h"

namespace veil {

class SummedSink final : public GradSink {
 public:
  // `count` elements of the gradient, from the parameter's element `first` on, as a view of its
  // unit's flat buffer.
  using Target = std::function<Tensor(ParamId, int64_t first, int64_t count)>;
  // With `accumulate` the first report of a body adds as well; without, it overwrites, and a later
  // one for the same rows (a tied weight, other samples) adds.
  SummedSink(std::vector<int64_t> numel_of_param, bool accumulate, Target target);
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;
  // A new micro-batch starts.
  void begin_body() { seen_.clear(); }

 private:
  bool adds(ParamId param, int64_t row) { return seen_.again(param, row) || accumulate_; }
  bool accumulate_;
  Target target_;
  std::vector<int64_t> numel_;  // by parameter
  ReportedRows seen_;
};

// Temporaries of one report, without what cuBLAS keeps for its products.
struct SinkScratch {
  int64_t samples;  // in the report; of an embedding(), its positions
  int64_t numel;    // of the parameter, with those joined to it
  Report::By by;
  bool accumulate;
  DType compute, grad;
  bool on_gpu;
};
int64_t summed_sink_scratch_bytes(const SinkScratch& report);

}  // namespace veil
