// Privacy noise: adds normals that depend on (key, step, parameter, element of the whole parameter)
// and on nothing else.
#pragma once

#include "base/names.h"
#include "kernels/noise_values.h"
#include "tensor/device.h"

namespace veil {

const NameTable<NoiseGenerator>& names(NoiseGenerator);

// Where a run's noise comes from: fixed from its first step to its last. The key is derived for
// KeyDomain::noise (stream_key.h).
struct NoiseSource {
  NoiseGenerator generator = NoiseGenerator::secure;
  ChaChaKey key = {};
};

// out[i] += deviation * z(step, parameter, first_element + i). out: [n] fp32 or fp64, contiguous; z
// is computed in its type, so any cut of a parameter into ranges gives the same bits on one device,
// and devices agree to a few units in the last place. A deviation of 0 leaves `out` as it is.
// Hardened noise rounds the sum to its lattice (noise_values.h).
void add_noise(const Tensor& out, const NoiseKnobs& knobs, const NoiseSource& source,
               uint32_t parameter, int64_t first_element);
// The same with knobs, fp64, that begin with a NoiseKnobs and are on out's device: for graphs.
// There the step is not checked: it is below kNoiseSteps.
void add_noise(const Tensor& out, const Tensor& knobs, const NoiseSource& source,
               uint32_t parameter, int64_t first_element);

}  // namespace veil
