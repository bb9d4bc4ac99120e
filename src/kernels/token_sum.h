// Sums over a sample's tokens: the per-sample gradient of biases.
#pragma once

#include "tensor/device.h"

namespace veil {

// out[i] = the sum over t of x[i, t]. x [batch, tokens, width] with a contiguous last dimension and
// any strides else (a slice of columns will do); out [batch, width] contiguous, fp32 (fp64 if x
// is). In a fixed order.
void token_sum(const Tensor& x, const Tensor& out);
// Partial sums that a GPU keeps meanwhile; none on CPU.
int64_t token_sum_scratch_bytes(int64_t batch, int64_t tokens, int64_t width, DType dtype,
                                bool on_gpu);
// Memory for these, for operations that sum x while they make it; undefined if none is needed.
Tensor token_sum_scratch(const Tensor& x);

}  // namespace veil
