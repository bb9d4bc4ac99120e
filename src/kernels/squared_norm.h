// The norm of a step's summed gradient, and the update's scale from it.
#pragma once

#include "kernels/update_rule.h"
#include "tensor/device.h"

namespace veil {

// total[0] += the sum of squares of x, in fp64 and a fixed order. x contiguous, of any floating
// type; total fp64, one element.
void add_squared_norm(const Tensor& x, const Tensor& total);
// Partial sums that a GPU keeps meanwhile; none on CPU.
int64_t squared_norm_scratch_bytes(int64_t numel, bool on_gpu);

// One field of a StepKnobs that `knobs` holds: fp64 [1].
Tensor knob(const Tensor& knobs, double StepKnobs::*field);

// Scales the update that `knobs`, a StepKnobs, describes down to its max_norm (clipped_scale).
void clip_scale(const Tensor& knobs);

}  // namespace veil
