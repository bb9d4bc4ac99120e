// Rotary positions on the joint product of queries, keys and values, and their gradient packed back
// into one tensor.
#pragma once

#include "kernels/rope_frequencies.h"
#include "tensor/device.h"

namespace veil {

// Turns heads [0, turned) of qkv [batch, tokens, heads, head_dim] in place, contiguous. Element j
// and j + frequencies.count make a pair, as Hugging Face has it; what is behind the pairs stays. The
// angle is made in fp64 and reduced before its sine is taken, so that far positions keep their
// digits.
void rope(const Tensor& qkv, int64_t turned, const RopeFrequencies& frequencies);

// dqkv [batch, tokens, heads + 2 kv_heads, head_dim], contiguous, from dq [batch, heads, tokens,
// head_dim] and dk, dv [batch, kv_heads, tokens, head_dim] of any strides with a contiguous last
// dimension; dq and dk are turned back. With no frequencies it only packs. head_dim is even.
void rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dqkv,
                   const RopeFrequencies& frequencies);

// rope_backward without frequencies; sums [batch, (heads + 2 kv_heads) head_dim], fp32 (fp64), gets
// token_sum of dqkv.
void pack_heads(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dqkv,
                const Tensor& sums);

}  // namespace veil
