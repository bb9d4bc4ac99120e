// Gated and plain activations of a feed-forward layer.
#pragma once

#include "tensor/device.h"

namespace veil {

// out = silu(gate) * up, where gate_up [rows, 2 width] holds the gate's columns first; out [rows,
// width]. Contiguous, computed in fp32 (fp64 if gate_up is).
void swiglu(const Tensor& gate_up, const Tensor& out);
// d_gate_up [rows, 2 width] (may be gate_up itself) from grad [rows, width]; `out` (may be grad
// itself, may be undefined) gets the activation again.
void swiglu_backward(const Tensor& gate_up, const Tensor& grad, const Tensor& d_gate_up,
                     const Tensor& out);

// The same with GELU by tanh instead of SiLU, as Gemma has it.
void geglu(const Tensor& gate_up, const Tensor& out);
void geglu_backward(const Tensor& gate_up, const Tensor& grad, const Tensor& d_gate_up,
                    const Tensor& out);

// GELU by tanh, as GPT-2 has it ("gelu_new"). x, out of any shape, contiguous.
void gelu(const Tensor& x, const Tensor& out);
// dx (may be x or grad); `out` (may be grad or x if dx is not, may be undefined) gets the
// activation again.
void gelu_backward(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out);
// Also sums [batch, width], fp32 (fp64): token_sum of dx, where x is [batch, tokens, width].
void gelu_backward_summed(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out,
                          const Tensor& sums);
// The exact GELU, by erf, as RoBERTa has it ("gelu").
void gelu_erf(const Tensor& x, const Tensor& out);
void gelu_erf_backward(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out);

}  // namespace veil
