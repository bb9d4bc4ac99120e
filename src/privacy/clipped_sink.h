// Gradients summed with known clip coefficients: the second half of clipping.
#pragma once

#include "nn/grad_sink.h"

namespace veil::privacy {

// Passes every report on to `sum`, each sample times its coefficient. A sample whose coefficient is 0 is selected out, never multiplied: what is not finite in it
// reaches nothing.
class ClippedSink final : public GradSink {
 public:
  ClippedSink(GradSink& sum, Tensor coefficients) : sum_(sum), coefficients_(std::move(coefficients)) {}
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

 private:
  Tensor scaled(const Tensor& x, int64_t first_sample) const;
  Tensor selected(const Tensor& x, int64_t first_sample) const;
  GradSink& sum_;
  Tensor coefficients_;  // [batch], of the sums' type
};

}  // namespace veil::privacy
