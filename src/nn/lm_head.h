// The end of a causal language model in one operation: final norm, vocabulary product and
// cross-entropy. The logits exist in pieces only: some samples at a time, and where one sample's
// are still too large, some rows of the vocabulary at a time (then each piece is made twice).
#pragma once

#include "nn/norm.h"

namespace veil {

class LmHead final : public Loss {
 public:
  struct Layers {
    Norm norm;
    ParamId head = -1;  // [vocabulary, hidden]; may be the embedding's table
    int64_t vocabulary = 0, hidden = 0, tokens = 0;
    int64_t piece_bytes = 0;  // the largest piece of logits; 0: piece_bytes_for(compute type)
  };
  explicit LmHead(Layers layers) : l_(layers) {}
  void set_trained(const std::vector<bool>& trained, bool below) override;
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  // For evaluation and tests: [batch, tokens, vocabulary], whole.
  Tensor logits(const Params& params, const Flow& last) const;
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;

  // 16-bit logits may take a sample at once, so that they are made once only; wider ones are kept
  // small.
  static int64_t piece_bytes_for(DType compute);

 private:
  struct Pieces {
    int64_t samples, columns;  // in one piece
  };
  Pieces pieces(int64_t batch, DType compute) const;
  Layers l_;
  bool makes_grad_ = true;
};

}  // namespace veil
