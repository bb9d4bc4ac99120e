// RoBERTa's first block: rows of a table by token, by position and of the first token type, summed
// and normalised. Real tokens take positions from padding_id + 1 on; padding stays at padding_id.
#pragma once

#include "nn/norm.h"

namespace veil {

class EncoderEmbedding final : public Block {
 public:
  struct Layers {
    ParamId table = -1, positions = -1, types = -1;  // [rows, hidden] each
    Norm norm;
    int64_t tokens = 0, hidden = 0, padding_id = 0;
  };
  explicit EncoderEmbedding(Layers layers) : l_(layers) {}
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

 private:
  Layers l_;
};

}  // namespace veil
