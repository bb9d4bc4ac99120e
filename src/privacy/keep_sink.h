// Per-sample gradients, made once and kept until the coefficients are known. Their norms are those
// of the kept numbers themselves, whatever they were rounded to.
#pragma once

#include <functional>

#include "nn/block.h"
#include "nn/grad_sink.h"

namespace veil::privacy {

class KeepSink final : public GradSink {
 public:
  // `count` elements of every sample's gradient, from the parameter's element `first` on: [batch,
  // count], rows contiguous.
  using Target = std::function<Tensor(ParamId, int64_t first, int64_t count)>;
  // Reports of `booked_param` go to `booked` instead: tables as they are, products as copies.
  KeepSink(std::vector<int64_t> numel_of_param, std::vector<bool> booked_param, Target target,
           GradSink& booked);
  void begin_body() { seen_.clear(); }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

 private:
  std::vector<int64_t> numel_;
  std::vector<bool> booked_param_;
  Target target_;
  GradSink& booked_;
  ReportedRows seen_;
};

}  // namespace veil::privacy
