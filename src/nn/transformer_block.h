// The pre-norm transformer block of Llama, Qwen2 and GPT-2: x + attention(norm(x)), then that +
// feed-forward(norm(that)).
#pragma once

#include "nn/attention.h"
#include "nn/decode.h"
#include "nn/norm.h"
#include "nn/projection.h"

namespace veil {

enum class Activation { swiglu, gelu };

struct TransformerLayers {
  std::string name;
  Norm attention_norm, feed_norm;
  Projection qkv, attention_out;  // qkv: q, k and v joined
  Projection up, down;            // up: gate and up joined for swiglu
  Attention attention;
  Activation activation = Activation::swiglu;
  int64_t hidden = 0, feed = 0;  // widths of the residual and inside the feed-forward
  int64_t tokens = 0;
};

class TransformerBlock final : public Block, public Decodes {
 public:
  explicit TransformerBlock(TransformerLayers layers) : l_(std::move(layers)) {}
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow recompute(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

  LayerCache make_cache(int64_t batch, int64_t capacity, DType compute,
                        Device device) const override;
  void remember(const Tape& tape, const LayerCache& cache) const override;
  Tensor decode(const Params& params, const Tensor& in, const LayerCache& cache,
                const DecodeStep& step) const override;

 private:
  // What the tape holds, by place in Tape::saved.
  struct Saved {
    // [batch, tokens, ...]; middle: the residual between the two halves
    Tensor normed, qkv, middle, middle_normed, up;
    Norm::Statistics first, second;
    explicit Saved(const Tape& tape);
    Saved() = default;
    std::vector<Tensor> list() const;
  };
  // Fills the tape; answers what `down` reads, [batch, tokens, feed].
  Tensor run(const Params& params, const Tensor& x, Tape& tape) const;
  Tensor activated(const Tensor& up) const;
  int64_t add_moments(BlockShape& shape, int64_t batch, int64_t hidden, int64_t feed, int64_t up,
                      int64_t joint, int64_t real_bytes) const;
  TransformerLayers l_;
};

}  // namespace veil
