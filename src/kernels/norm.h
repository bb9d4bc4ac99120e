// Normalisation by the root mean square, and by mean and variance with weight and bias; with the
// residual's addition in front of it and its gradient's behind it.
#pragma once

#include "tensor/device.h"

namespace veil {

// out = x r (w + offset) with r = 1 / sqrt(mean(x^2) + epsilon), row by row; offset is 0, or 1 as in
// Gemma. x, out [rows, width] of one type; weight [width] of that type; rstd [rows] fp32 (fp64 if x is). With `add` (same shape as x; may
// be undefined) x + add is rounded to x's type, written to `sum` (may be x or add) and normalised
// instead; without, `sum` is not looked at.
// All tensors contiguous; leading dimensions count as rows.
void rms_norm(const Tensor& x, const Tensor& add, const Tensor& weight, double epsilon,
              const Tensor& sum, const Tensor& out, const Tensor& rstd, double offset = 0);

// dx = r (g - y mean(g y)) + residual, where g = dy (w + offset) and y = x r. `residual` may be undefined; dx
// may be dy or residual. weight_grad [batch, width], fp32 (fp64 if x is): the sum of dy y over a
// sample's rows, in a fixed order; rows divide evenly into samples.
void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& residual, const Tensor& dx, const Tensor& weight_grad,
                       double offset = 0);
// Partial sums that a GPU keeps meanwhile; none on CPU.
int64_t norm_backward_scratch_bytes(int64_t batch, int64_t rows_per_sample, int64_t width,
                                    DType dtype, bool on_gpu);

// out = (x - mean) r w + b with r = 1 / sqrt(variance + epsilon), row by row. x, out [rows, width];
// weight, bias [width]; mean, rstd [rows] fp32 (fp64 if x is). `add` and `sum` as in rms_norm.
void layer_norm(const Tensor& x, const Tensor& add, const Tensor& weight, const Tensor& bias,
                double epsilon, const Tensor& sum, const Tensor& out, const Tensor& mean,
                const Tensor& rstd);

// dx = r (g - mean(g) - y mean(g y)) + residual, where g = dy w and y = (x - mean) r. weight_grad
// and bias_grad [batch, width], fp32 (fp64 if x is): sums over a sample's rows, in a fixed
// order. Twice norm_backward_scratch_bytes on a GPU.
void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& weight_grad, const Tensor& bias_grad);

}  // namespace veil
