// Layer normalisation with weight and bias; residuals as in rms_norm.h.
#pragma once

#include "tensor/device.h"

namespace veil {

// out = (x - mean) r w + b with r = 1 / sqrt(variance + epsilon), row by row. x, out [rows, width]; weight, bias [width]; mean, rstd [rows] fp32 (fp64
// where x is). `add` and `sum` as in rms_norm.
void layer_norm(const Tensor& x, const Tensor& add, const Tensor& weight, const Tensor& bias, double epsilon,
                const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd);

// dx = r (g - mean(g) - y mean(g y)) + residual, where g = dy w and y = (x - mean) r. weight_grad and bias_grad [batch, width], fp32 (fp64 where x is): sums
// over a sample's rows, in a fixed order. Twice norm_backward_scratch_bytes (rms_norm.h) on a GPU.
void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, const Tensor& residual, const Tensor& dx, const Tensor& weight_grad,
                         const Tensor& bias_grad);

}  // namespace veil
