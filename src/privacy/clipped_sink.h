// Gradients summed with known clip coefficients: the second half of clipping.
#pragma once

#include <functional>

#include "nn/block.h"
#include "nn/grad_sink.h"

namespace veil::privacy {

// The coefficients of a body's samples, as they are in memory when a report comes.
struct ClipCoefficients {
  Tensor values;                                                          // fp64 [layers, batch]
  std::vector<int> layer_of;                                              // by parameter
  Tensor of(ParamId param, int64_t first_sample, int64_t samples) const;  // [samples]
};

// Adds each sample's gradient times its coefficient, in fp32 or better: products are scaled when
// they are made, not their factors, so that what is added has the norm that was measured. A sample
// whose coefficient is 0 is passed over, never multiplied: what is not finite in it reaches
// nothing.
class ClippedSink final : public GradSink {
 public:
  // `count` elements of the gradient, from the parameter's element `first` on, as a view of its
  // unit's flat buffer: fp32, or fp64 if the reports are.
  using Target = std::function<Tensor(ParamId, int64_t first, int64_t count)>;
  // With `accumulate` the first report of a body adds as well; without, it overwrites.
  ClippedSink(std::vector<int64_t> numel_of_param, bool accumulate, Target target,
              ClipCoefficients coefficients);
  void begin_body() { seen_.clear(); }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

 private:
  std::vector<int64_t> numel_;
  bool accumulate_;
  Target target_;
  ClipCoefficients coefficients_;
  ReportedRows seen_;
};

// The temporaries of one report. sample_products: StepOptions::sample_products.
int64_t clipped_sink_scratch_bytes(const Report& report, DType compute, bool on_gpu,
                                   bool sample_products);

}  // namespace veil::privacy
