// Sums over the first dimension: bias gradients, and whatever is already one gradient per sample.
#pragma once

#include "tensor/device.h"

namespace veil {

// out[j] = sum over i of x[i, j], or out[j] += that with `accumulate`. x [rows, columns] and out
// [columns] contiguous, of any floating types. The sum runs in fp32 (fp64 if x or out is) in a
// fixed order and is rounded once.
void column_sum(const Tensor& x, const Tensor& out, bool accumulate);

// Partial sums that a GPU keeps meanwhile; none on CPU.
int64_t column_sum_scratch_bytes(int64_t rows, int64_t columns, DType x, DType out, bool on_gpu);

}  // namespace veil
