// A new token's queries, keys and values: turned to their positions, keys and values put behind
// those that the cache holds.
#pragma once

#include "kernels/rope_frequencies.h"
#include "tensor/device.h"

namespace veil {

// qkv [batch, heads + 2 kv_heads, head_dim]: the queries are turned in place. keys and values
// [batch, capacity, kv_heads, head_dim] get row positions[i] of sample i. positions: int64 [batch],
// below the capacity. All contiguous and of one device.
void cache_append(const Tensor& qkv, const Tensor& keys, const Tensor& values,
                  const Tensor& positions, const RopeFrequencies& frequencies);

}  // namespace veil
