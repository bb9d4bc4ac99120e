// A diffusion transformer's first block: patches of a noised image to hidden states, and a timestep
// with a label to the conditioning. What runs on is SiLU of the conditioning, for that is all that
// the blocks read of it.
#pragma once

#include "nn/patches.h"
#include "nn/projection.h"

namespace veil {

class DiffusionEmbedding final : public Block {
 public:
  struct Layers {
    PatchGrid grid;
    // a convolution whose stride is its kernel: [hidden, channels, patch, patch]
    Projection patches;
    ParamId positions = -1;        // [1, tokens, hidden]
    Projection time_in, time_out;  // of the timestep's sines and cosines, with SiLU between them
    ParamId table = -1;            // [labels, hidden]
    int64_t labels = 0;            // classes, and one for no class
    int64_t hidden = 0;
  };
  explicit DiffusionEmbedding(Layers layers) : l_(layers) {}
  // in.hidden [batch, channels, size, size], in.condition [batch] as kernels/timestep_features.h
  // has it.
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow recompute(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

 private:
  // Fills the tape; answers the flow's conditioning.
  Tensor run(const Params& params, const Flow& in, Tape& tape) const;
  Layers l_;
};

}  // namespace veil
