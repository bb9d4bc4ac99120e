// The end of RoBERTa as a classifier: the first token, which the last block has chosen
// (GoesOn::first), goes through a dense layer, tanh, the labels' product and cross-entropy.
#pragma once

#include "nn/projection.h"

namespace veil {

class EncoderClassifier final : public Loss {
 public:
  struct Layers {
    Projection dense, out;  // hidden -> hidden, hidden -> labels; both with biases
  };
  explicit EncoderClassifier(Layers layers) : l_(layers) {}
  // last.hidden [batch, 1, hidden], batch.targets [batch] labels.
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  Tensor logits(const Params& params, const Flow& last) const;  // [batch, labels]
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;

 private:
  Layers l_;
};

}  // namespace veil
