// Per-sample gradients, made once and kept until the coefficients are known. Their norms are those
// of the kept numbers themselves, whatever they were rounded to: found while they are made, copied or
// added to where a kernel does both (kernels/sample_products.h, copy_normed, embedding_grads_normed),
// otherwise afterwards.
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
  // `squared` fp64 [params, batch] gets the norms that are found on the way.
  KeepSink(std::vector<int64_t> numel_of_param, std::vector<bool> booked_param, Target target,
           GradSink& booked, Tensor squared);
  void begin_body();
  // Whether its norms have been found: those of the whole gradient of every sample.
  bool normed(ParamId param) const;
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

 private:
  enum class Norming { unreported, found, afterwards };
  // What was kept is made or added to without its norms.
  void norm_afterwards(ParamId param);
  std::vector<int64_t> numel_;
  std::vector<bool> booked_param_;
  Target target_;
  GradSink& booked_;
  Tensor squared_;
  ReportedRows seen_;
  std::vector<Norming> norming_;  // by parameter
  std::vector<int64_t> found_;    // likewise: numbers whose squares are in the norms
};

// The temporaries of one report. sample_products: StepOptions::sample_products.
int64_t keep_sink_scratch_bytes(const Report& report, DType compute, bool on_gpu,
                                bool sample_products);

}  // namespace veil::privacy
