// Attention over the joint product of queries, keys and values, with an explicit backward.
// LibTorch's kernels do the work, on ARM CPUs mostly Veil's own.
#pragma once

#include <cmath>
#include <vector>

#include "base/names.h"
#include "kernels/rope_frequencies.h"
#include "nn/scores.h"
#include "tensor/device.h"

namespace veil {

// automatic: cuDNN on Hopper and later unless LibTorch is told to be deterministic, flash on other
// GPUs and for windows and heads wider than 128 (both for 16-bit types), flash on CPU, or Veil's
// own of that kind (kernels/tiled_attention.h). math: scores as a whole matrix, to compare with;
// also what automatic takes for fp32 and fp64 on a GPU, and for masks on a GPU.
enum class AttentionKind { automatic, math };
const NameTable<AttentionKind>& names(AttentionKind);

struct Attention {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = true;  // padding is on the right only, so no mask is needed
  AttentionKind kind = AttentionKind::automatic;
  RopeFrequencies rope;  // turns queries and keys; none: positions are elsewhere
  double scale = 0;      // of the scores; 0: head_dim^-1/2
  // Where causal, position t sees t - window + 1 ... t; 0: all before it.
  int64_t window = 0;

  double score_scale() const {
    return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }
  int64_t width() const { return heads * head_dim; }
  int64_t joint_width() const { return (heads + 2 * kv_heads) * head_dim; }

  // Turns queries and keys of qkv [batch, tokens, joint width] in place, if there is a rope.
  void turn(const Tensor& qkv) const;
  // qkv [batch, tokens, joint width], turned in place if there is a rope (`turned`: it already
  // is) -> [batch, tokens, width]. `kept` gets the result and what the library's backward wants
  // next to it; if it is filled, nothing is made again. `mask` [batch, 1, 1, tokens], if it is
  // defined, is added to the scores: padding_mask().
  Tensor forward(const Tensor& qkv, bool turned, std::vector<Tensor>& kept,
                 const Tensor& mask = {}) const;
  // dqkv from d_out [batch, tokens, width]; qkv is turned.
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const std::vector<Tensor>& kept,
                  const Tensor& mask = {}) const;
  // Without a rope or a mask: also sums [batch, joint width] of dqkv over the tokens.
  Tensor backward_summed(const Tensor& d_out, const Tensor& qkv, const std::vector<Tensor>& kept,
                         const Tensor& sums) const;

  // Whether the window hides anything in a sequence of so many tokens.
  bool slides(int64_t tokens) const { return window > 0 && window < tokens; }
  int64_t kept_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu,
                     bool masked = false) const;
  // What forward and backward take for the window on CPU.
  int64_t window_bytes(int64_t tokens, DType compute) const;
  // Whether scores are whole matrices, which forward and backward hold: on a GPU also for types and
  // masks that no library there takes.
  bool holds_scores(DType compute, bool on_gpu, bool masked = false) const;
  Scores scores(int64_t batch, int64_t tokens, DType compute, bool on_gpu,
                bool masked = false) const;
  // Then, the most that is held at once: by forward with its result, and by backward until the
  // gradients of q, k and v are there, they included.
  int64_t forward_score_bytes(int64_t batch, int64_t tokens, DType compute) const;
  int64_t backward_score_bytes(int64_t batch, int64_t tokens, DType compute) const;
  // of forward: two products, half of them if causal
  int64_t flops(int64_t batch, int64_t tokens) const;

 private:
  struct HeadGrads {
    Tensor q, k, v;  // by head: [batch, its heads, tokens, head_dim], not turned back
  };
  HeadGrads head_grads(const Tensor& d_out, const Tensor& qkv, const std::vector<Tensor>& kept,
                       const Tensor& mask) const;
};

// The lowest number of a type, which is added to scores that are hidden. (Not -inf: a row that is
// hidden as a whole stays finite, as in transformers.)
double hidden_score(DType dtype);
// [batch, 1, 1, tokens] of type `compute`: 0 where ids [batch, tokens] has text, hidden_score()
// where it has padding.
Tensor padding_mask(const Tensor& ids, int64_t padding_id, DType compute);

// "cudnn", "flash" or "math": what automatic is for this type on this device.
std::string attention_backend(AttentionKind kind, DType compute, Device device);

}  // namespace veil
