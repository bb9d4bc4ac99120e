// The normals of noise_values.h for a range of elements, on a CPU: several groups at once, equal in
// every bit to those of noise_group.
#pragma once

#include "kernels/noise_values.h"

namespace veil {

// out[i] = z(step, parameter, first_element + i) for i < count. Real: float, or double, which is
// made group by group.
template <typename Real>
void noise_range(const NoiseKeys& keys, uint64_t step, uint32_t parameter, int64_t first_element,
                 int64_t count, Real* out);

// out[i] += deviation * z(step, parameter, first_element + i), rounded to the lattice if the noise
// is hardened. A deviation of 0 leaves `out` as it is.
template <typename Real>
void add_noise_range(const NoiseKeys& keys, const NoiseKnobs& knobs, uint32_t parameter,
                     int64_t first_element, int64_t count, Real* out);

}  // namespace veil
