// Attention over the joint product of queries, keys and values, with an explicit backward.
// LibTorch's kernels do the work.
#pragma once

#include <vector>

#include "base/names.h"
#include "kernels/rope_frequencies.h"
#include "tensor/device.h"

namespace veil {

// automatic: cuDNN on Hopper and later unless LibTorch is told to be deterministic, flash on other
// GPUs (both for 16-bit types), flash on CPU. math: scores as a whole matrix, to compare with; also
// what automatic takes for fp32 and fp64 on a GPU.
enum class AttentionKind { automatic, math };
const NameTable<AttentionKind>& names(AttentionKind);

struct Attention {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = true;  // padding is on the right only, so no mask is needed
  AttentionKind kind = AttentionKind::automatic;
  RopeFrequencies rope;  // turns queries and keys; none: positions are elsewhere

  int64_t width() const { return heads * head_dim; }
  int64_t joint_width() const { return (heads + 2 * kv_heads) * head_dim; }

  // qkv [batch, tokens, joint width], turned in place where there is a rope (`turned`: it already
  // is) -> [batch, tokens, width]. `kept` gets the result and what the library's backward wants
  // beside it; where it is filled, nothing is made again.
  Tensor forward(const Tensor& qkv, bool turned, std::vector<Tensor>& kept) const;
  // dqkv from d_out [batch, tokens, width].
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const std::vector<Tensor>& kept) const;

  int64_t kept_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu) const;
  // of forward: two products, half of them where causal
  int64_t flops(int64_t batch, int64_t tokens) const;
};

// "cudnn", "flash" or "math": what automatic is for this type on this device.
std::string attention_backend(AttentionKind kind, DType compute, Device device);

}  // namespace veil
