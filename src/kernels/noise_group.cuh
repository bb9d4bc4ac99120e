// A group of noise on the device, where its speed matters little: the second draw of hardened noise is
// made out of line, which keeps compilation short.
#pragma once

#include "kernels/noise_values.h"

namespace veil::launch {

// first += its part of hardened noise. Rounded as the quick update rounds it (noisy_update.cuh).
template <typename Real>
__device__ __noinline__ void add_second_draw(NoiseGroup<Real>& first, const PhiloxSecret& second,
                                             uint64_t step, uint32_t parameter, uint64_t index,
                                             Real deviation) {
  const NoiseGroup<Real> draw = noise_second_draw<Real>(second, step, parameter, index);
  const Real blur = static_cast<Real>(kNoiseSecondWeight) * deviation;
#pragma unroll
  for (int k = 0; k < kNoiseGroup; ++k) first.value[k] = fma(blur, draw.value[k], first.value[k]);
}

// Normals times `deviation`. kGenerator: keys.generator.
template <typename Real, NoiseGenerator kGenerator>
__device__ __forceinline__ NoiseGroup<Real> noise_group_on_device(const NoiseKeys& keys,
                                                                  uint64_t step, uint32_t parameter,
                                                                  int64_t group, Real deviation) {
  constexpr bool kHardened = kGenerator == NoiseGenerator::hardened;
  const auto index = static_cast<uint64_t>(group);
  const Real weight = kHardened ? static_cast<Real>(kNoiseFirstWeight) * deviation : deviation;
  NoiseGroup<Real> noise = noise_draw<Real>(kGenerator, keys.key, step, parameter, index, weight);
  if constexpr (kHardened) add_second_draw(noise, keys.second, step, parameter, index, deviation);
  return noise;
}

}  // namespace veil::launch
