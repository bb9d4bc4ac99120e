// The end of a sequence classifier: final norm, label product and cross-entropy of one token per
// sample, which the last block has chosen (GoesOn::last).
#pragma once

#include "nn/norm.h"

namespace veil {

class Classifier final : public Loss {
 public:
  struct Layers {
    Norm norm;
    ParamId score = -1;  // [labels, hidden]
    int64_t labels = 0, hidden = 0;
  };
  explicit Classifier(Layers layers) : l_(layers) {}
  // last.hidden [batch, 1, hidden], batch.targets [batch] labels.
  void set_trained(const std::vector<bool>& trained, bool below) override;
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  Tensor logits(const Params& params, const Flow& last) const;  // [batch, labels]
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;

 private:
  Layers l_;
  bool below_ = true, makes_grad_ = true;
};

}  // namespace veil
