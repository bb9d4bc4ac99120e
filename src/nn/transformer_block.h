// The transformer block of every language model: attention and feed-forward, each added to a
// residual. Where a family normalises, and how, are options:
//
//   before (Llama, GPT-2, ...)  m = x + A(n1(x))              y = m + F(n2(m))
//   around (Gemma 3)            m = x + p1(A(n1(x)))          y = m + p2(F(n2(m)))
//   after (OLMo 2)              m = x + p1(A(x))              y = m + p2(F(m))
//   on the sum (RoBERTa)        m = n2(x + A(x))              y = last(m + F(m))
//
// n1 is attention_norm, p1 attention_post_norm, n2 feed_norm, p2 feed_post_norm, last output_norm.
#pragma once

#include "nn/decode.h"
#include "nn/head_norms.h"
#include "nn/projection.h"

namespace veil {

// swiglu, geglu (GELU by tanh): up is gate and up joined. gelu is by tanh, gelu_erf exact.
enum class Activation { swiglu, geglu, gelu, gelu_erf };

// Which tokens go on behind attention: a classifier reads one of the last block's. `last`: the last
// one that is not padding.
enum class GoesOn { all, first, last };

struct TransformerLayers {
  std::string name;
  Norm attention_norm = {}, feed_norm = {};            // those that do not exist are left out
  Norm attention_post_norm = {}, feed_post_norm = {};  // in front of the residual's addition
  // Behind the last addition. The second residual is then the normalised m.
  Norm output_norm = {};
  Projection qkv, attention_out;  // qkv: q, k and v joined
  Projection up, down;
  HeadNorms head_norms = {};
  Attention attention;
  Activation activation = Activation::swiglu;
  int64_t hidden = 0, feed = 0;  // widths of the residual and inside the feed-forward
  int64_t tokens = 0;
  bool masks_padding = false;  // attention does not see tokens that are padding_id (Flow::ids)
  int64_t padding_id = -1;     // -1: none
  GoesOn goes_on = GoesOn::all;

  int64_t tokens_behind() const { return goes_on == GoesOn::all ? tokens : 1; }
};

class TransformerBlock final : public Block, public Decodes {
 public:
  explicit TransformerBlock(TransformerLayers layers);
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow recompute(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  void set_trained(const std::vector<bool>& trained, bool below) override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  const TransformerLayers& layers() const { return l_; }

  LayerCache make_cache(int64_t batch, int64_t capacity, DType compute,
                        Device device) const override;
  void remember(const Params& params, const Tape& tape, const LayerCache& cache) const override;
  Tensor decode(const Params& params, const Tensor& in, const LayerCache& cache,
                const DecodeStep& step) const override;

 private:
  // What the tape holds, by place in Tape::saved; undefined if the block has no such part.
  struct Saved {
    // [batch, tokens, ...], from `middle` on of the tokens that go on. qkv: turned, or as projected
    // if there are norms of heads. middle: the residual between the two halves (on the sum: what is
    // normalised to be it). attended, fed: what the post norms normalise, and the sum that
    // output_norm does. normed and middle_normed are there if the weights that read them are
    // trained.
    Tensor normed, qkv, middle, middle_normed, up, attended, fed;
    Norm::Statistics first, second, attended_stats, fed_stats;
    Tensor mask;    // padding_mask()
    Tensor places;  // [batch]: of the tokens that go on, among the rows of all; undefined: all do
    explicit Saved(const Tape& tape);
    Saved() = default;
    std::vector<Tensor> list() const;
  };
  // The last norm, if it is not the one in front of the feed-forward: its input is on the tape.
  const Norm& last_norm() const {
    return l_.output_norm.exists() ? l_.output_norm : l_.feed_post_norm;
  }
  bool ends_with_norm() const { return last_norm().exists(); }
  Tensor places(const Flow& in) const;
  // Everything up to the feed-forward's product with `up`.
  Saved run(const Params& params, const Flow& in, Tape& tape) const;
  // Queries, keys and values as attention takes them: what the tape has of them, or that normalised
  // and turned anew, if there are norms of heads.
  Tensor prepared_heads(const Params& params, const Tensor& qkv) const;
  Tensor activated(const Tensor& up) const;
  void activation_backward(const Tensor& up, const Tensor& grad, const Tensor& d_up,
                           const Tensor& out) const;
  static Tensor reported_input(const Params& params, const Projection& map, const Norm& norm,
                               const Tensor& saved, const Tensor& x);
  void add_moments(BlockShape& shape, int64_t batch, DType compute, bool on_gpu) const;
  TransformerLayers l_;
  std::vector<bool> trained_;  // by ParamId; empty: all
  bool below_ = true, makes_input_grad_ = true;
};

}  // namespace veil
