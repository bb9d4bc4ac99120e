// A diffusion transformer's block (adaLN-Zero): x + gate attention(modulated norm(x)), then that +
// gate feed-forward(modulated norm(that)). Shifts, scales and gates come from the conditioning; the
// norms have no weights of their own.
#pragma once

#include "nn/attention.h"
#include "nn/modulation.h"

namespace veil {

struct DiffusionLayers {
  std::string name;
  Modulation modulation;  // shift, scale and gate of attention, then of the feed-forward
  Projection qkv, attention_out, up, down;
  Attention attention;
  int64_t hidden = 0, feed = 0, tokens = 0;
  double epsilon = 1e-6;
};

class DiffusionBlock final : public Block {
 public:
  explicit DiffusionBlock(DiffusionLayers layers) : l_(std::move(layers)) {}
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow recompute(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

 private:
  // What the tape holds, by place in Tape::saved.
  struct Saved {
    Tensor condition;   // the flow's own
    Tensor modulation;  // [batch, 6 hidden]
    // [batch, tokens, ...]; attended and fed: what the gates open to
    Tensor normed, qkv, attended, middle, middle_normed, up, fed;
    Tensor mean, rstd, middle_mean, middle_rstd;  // [rows]
    explicit Saved(const Tape& tape);
    Saved() = default;
    std::vector<Tensor> list() const;
  };
  void run(const Params& params, const Flow& in, Tape& tape) const;
  DiffusionLayers l_;
};

}  // namespace veil
