// Attention on CPUs in fp32, tile by tile, so that scores stay in a core's cache. LibTorch's own
// takes its products from a BLAS, for which tiles of short heads are too small. A thread holds
// copies of one head at a time, three forward and eight backward, which are no tensors. A value
// that is not a number may show in up to 63 results before it, of the same sample.
#pragma once

#include "tensor/device.h"

namespace veil {

struct TiledAttention {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = true;
  double scale = 1;  // of the scores
};

// Whether that holds for such queries, keys and values on this processor.
bool tiled_attention_is_fastest(int64_t head_dim, DType compute);

// qkv [batch, tokens, heads + 2 kv_heads, head_dim], contiguous -> out [batch, tokens, heads,
// head_dim] and, by row of scores, the logarithm to base 2 of the sum of their exponentials
// [batch, heads, tokens]. Query heads share key heads in groups of neighbours.
void tiled_attention(const TiledAttention& a, const Tensor& qkv, const Tensor& out,
                     const Tensor& log_sums);

// dq like out, dk and dv [batch, tokens, kv_heads, head_dim] from d_out, which is like out.
void tiled_attention_backward(const TiledAttention& a, const Tensor& d_out, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sums, const Tensor& dq,
                              const Tensor& dk, const Tensor& dv);

}  // namespace veil
