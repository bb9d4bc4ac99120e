// Clipped sums over samples.
#pragma once

#include "tensor/device.h"

namespace veil {

// out[j] = the sum over i of coefficients[i] x[i, j], in order of i, or out[j] += that with `add`.
// A sample whose coefficient is 0 is passed over, never multiplied: what is not finite in it
// reaches nothing. x [n, ...] of any floating type, each sample's elements contiguous; coefficients
// fp64 [n]; out fp32 (fp64 if x is), contiguous. Sums run in out's type. `together`: as in
// NoisyUpdate, and with it the sum is made before it is added.
void combine_samples(const Tensor& x, const Tensor& coefficients, const Tensor& out, bool add,
                     int64_t together = 0);

// out[i] = coefficients[i] x[i], or with `select` x[i] itself; 0 if the coefficient is. x [n,
// ...] as above, out [n, ...] fp32 (fp64 if x is), contiguous.
void scale_samples(const Tensor& x, const Tensor& coefficients, const Tensor& out, bool select);

}  // namespace veil
