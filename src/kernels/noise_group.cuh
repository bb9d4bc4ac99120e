// A group of normals on the device, where its speed matters little: the second draw of hardened noise
// is made out of line, which keeps compilation short.
#pragma once

#include "kernels/noise_values.h"

namespace veil::launch {

template <typename Real>
__device__ __noinline__ void add_second_draw(NoiseGroup<Real>& group, const PhiloxSecret& second,
                                             uint64_t step, uint32_t parameter, uint64_t index) {
  const NoiseGroup<Real> draw = noise_second_draw<Real>(second, step, parameter, index);
#pragma unroll
  for (int k = 0; k < kNoiseGroup; ++k)
    group.value[k] = noise_weighted(group.value[k], draw.value[k]);
}

// kGenerator: keys.generator.
template <typename Real, NoiseGenerator kGenerator>
__device__ __forceinline__ NoiseGroup<Real> noise_group_on_device(const NoiseKeys& keys,
                                                                  uint64_t step, uint32_t parameter,
                                                                  int64_t group) {
  const auto index = static_cast<uint64_t>(group);
  NoiseGroup<Real> normals = noise_draw<Real>(kGenerator, keys.key, step, parameter, index);
  if constexpr (kGenerator == NoiseGenerator::hardened)
    add_second_draw(normals, keys.second, step, parameter, index);
  return normals;
}

}  // namespace veil::launch
