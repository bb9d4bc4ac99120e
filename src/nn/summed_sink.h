// The sink of a step that is not private: adds the samples' gradients into one flat buffer a unit.
#pragma once

#include <functional>
#include <vector>

#include "nn/grad_sink.h"

namespace veil {

class SummedSink final : public GradSink {
 public:
  // `target` gives a parameter's gradient as a view of its unit's flat buffer. With `accumulate` the first report of a body adds as well; without, it overwrites,
  // and a later one for the same rows (a tied weight) adds.
  SummedSink(int params, bool accumulate, std::function<Tensor(ParamId)> target);
  void linear(ParamId weight, int64_t row, const Tensor& a, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;
  // A new micro-batch starts.
  void begin_body();

 private:
  bool adds(ParamId param, int64_t row);
  bool accumulate_;
  std::function<Tensor(ParamId)> target_;
  std::vector<std::vector<int64_t>> seen_rows_;  // by parameter: first rows already written in this body
};

// Temporaries of one report, without what cuBLAS keeps for its products.
struct SinkScratch {
  int64_t samples;  // in the report
  int64_t numel;    // of the parameter
  bool matrix;      // reported by linear(), otherwise by direct()
  bool accumulate;
  DType compute, grad;
  bool on_gpu;
};
int64_t summed_sink_scratch_bytes(const SinkScratch& report);

}  // namespace veil
