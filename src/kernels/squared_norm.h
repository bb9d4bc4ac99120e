// Squared length of a flat tensor.
#pragma once

#include "tensor/device.h"

namespace veil {

// total[0] += the sum of squares of x, in fp64 and a fixed order. x contiguous, of any floating type; total fp64, one element.
void add_squared_norm(const Tensor& x, const Tensor& total);
// Partial sums that a GPU keeps meanwhile; none on CPU.
int64_t squared_norm_scratch_bytes(int64_t numel, bool on_gpu);

}  // namespace veil
