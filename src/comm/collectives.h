// What the backends' collectives share: what they demand of tensors, and sums whose bits do not
// depend on how the data was cut.
#pragma once

#include <span>

#include "tensor/device.h"

namespace veil {

// What every backend demands of the tensors it is given. Each throws std::logic_error.
void check_all_gather(const Tensor& shard, const Tensor& whole, int size, Device device);
void check_reduce_scatter(const Tensor& whole, const Tensor& shard, int size, Device device);
void check_all_to_all(const Tensor& rows, const Tensor& received, int size, Device device);
void check_all_reduce(const Tensor& data, Device device);
void check_broadcast(const Tensor& data, int root, int size, Device device);

// Whether sum_in_rank_order adds this type: fp32, fp64, bf16, fp16.
bool can_sum(DType dtype);

// out[i] = terms[0][i] + terms[1][i] + ... from left to right. fp32 and fp64 add in their own type;
// bf16 and fp16 add in fp32 and round once. `out` may be one of the terms; partial overlap is not
// allowed.
void sum_in_rank_order(DType dtype, std::span<const void* const> terms, void* out, int64_t count);

}  // namespace veil
