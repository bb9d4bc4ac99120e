// A group of normals on the device. A second draw is made out of line, so that it costs single draws
// no registers.
#pragma once

#include "kernels/noise_values.h"

namespace veil::launch {

template <typename Real>
__device__ __noinline__ void add_second_draw(NoiseGroup<Real>& group, const ChaChaKey& second,
                                             uint64_t step, uint32_t parameter, uint64_t index) {
  const NoiseGroup<Real> draw = noise_second_draw<Real>(second, step, parameter, index);
#pragma unroll
  for (int k = 0; k < kNoiseGroup; ++k)
    group.value[k] = static_cast<Real>(kNoiseFirstWeight) * group.value[k] +
                     static_cast<Real>(kNoiseSecondWeight) * draw.value[k];
}

// kGenerator: keys.generator, or secure for hardened noise where `keys` decides.
template <typename Real, NoiseGenerator kGenerator>
__device__ __forceinline__ NoiseGroup<Real> noise_group_on_device(const NoiseKeys& keys,
                                                                  uint64_t step, uint32_t parameter,
                                                                  int64_t group) {
  const auto index = static_cast<uint64_t>(group);
  NoiseGroup<Real> normals = noise_draw<Real>(kGenerator, keys.key, step, parameter, index);
  if constexpr (kGenerator != NoiseGenerator::philox) {
    if (keys.generator == NoiseGenerator::hardened)
      add_second_draw(normals, keys.second, step, parameter, index);
  }
  return normals;
}

}  // namespace veil::launch
