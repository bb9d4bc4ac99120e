// The end of a sequence classifier: the last token that is not padding goes through final norm,
// label product and cross-entropy. What follows the choice of the token is one token per sample.
#pragma once

#include "nn/norm.h"

namespace veil {

class Classifier final : public Loss {
 public:
  struct Layers {
    Norm norm;
    ParamId score = -1;  // [labels, hidden]
    int64_t labels = 0, hidden = 0, tokens = 0;
    int64_t padding_id = -1;  // -1: none, the last position counts
  };
  explicit Classifier(Layers layers) : l_(layers) {}
  // batch.inputs [batch, tokens] ids, batch.targets [batch] labels.
  void set_trained(const std::vector<bool>& trained, bool below) override;
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  // [batch, labels]
  Tensor logits(const Params& params, const Flow& last, const Batch& batch) const;
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;

 private:
  // Each sample's last token among the rows of all: [batch].
  Tensor last_rows(const Tensor& ids) const;
  Tensor pooled(const Tensor& hidden, const Tensor& rows) const;  // [batch, 1, hidden]
  Layers l_;
  bool below_ = true, makes_grad_ = true;
};

}  // namespace veil
