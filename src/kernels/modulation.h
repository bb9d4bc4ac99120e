// What a diffusion transformer's conditioning does to hidden states: normalisation modulated by
// each sample's own scale and shift (adaLN), and gated residuals. Hidden states are contiguous
// [batch, rows, width]. A sample's scales, shifts, gates and their gradients are [batch, width],
// usually some columns of a wider matrix: the last dimension is contiguous, rows lie as far apart
// as they do.
#pragma once

#include "tensor/device.h"

namespace veil {

// out = (x - mean) r (1 + scale) + shift with r = 1 / sqrt(variance + epsilon), row by row; mean,
// rstd [batch * rows] fp32 (fp64 if x is). With `add` (may be undefined) x + gate add is rounded
// to x's type, written to `sum` (may be x or add) and normalised instead. scale, shift and gate are
// equally far apart.
void modulated_norm(const Tensor& x, const Tensor& add, const Tensor& gate, const Tensor& scale,
                    const Tensor& shift, double epsilon, const Tensor& sum, const Tensor& out,
                    const Tensor& mean, const Tensor& rstd);

// dx = r (g - mean(g) - y mean(g y)) + residual, where g = dy (1 + scale) and y = (x - mean) r;
// `residual` may be undefined, dx may be dy or residual. scale_grad and shift_grad, fp32 (fp64
// where x is) and equally far apart: sums of dy y and of dy over a sample's rows, in a fixed order.
// Twice norm_backward_scratch_bytes (norm.h) on a GPU.
void modulated_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale,
                             const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx, const Tensor& scale_grad, const Tensor& shift_grad);

// out = x + gate add; out may be x or add.
void gated_add(const Tensor& x, const Tensor& add, const Tensor& gate, const Tensor& out);

// d_add = dy gate (may be dy or add); gate_grad and add_sum (contiguous), fp32 (fp64 if dy is):
// sums of dy add and of dy gate over a sample's rows, in a fixed order. Twice
// norm_backward_scratch_bytes on a GPU.
void gated_add_backward(const Tensor& dy, const Tensor& add, const Tensor& gate,
                        const Tensor& d_add, const Tensor& gate_grad, const Tensor& add_sum);

}  // namespace veil
