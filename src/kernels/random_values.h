// One group of four random values, shared by the CPU reference and the CUDA kernel.
#pragma once

#include <cmath>

#include "kernels/philox.h"

namespace veil {

struct Four {
  float value[4];
};

// [0, 1)
VEIL_HOST_DEVICE float unit_interval(uint32_t word) {
  return static_cast<float>(word >> 8) * 5.9604644775390625e-8f;
}

VEIL_HOST_DEVICE Four uniform_four(uint64_t seed, uint32_t domain, uint64_t group) {
  const Philox4 r = philox4x32(seed, group, domain);
  Four out;
  for (int i = 0; i < 4; ++i) out.value[i] = 2.0f * unit_interval(r.word[i]) - 1.0f;
  return out;
}

VEIL_HOST_DEVICE Four normal_four(uint64_t seed, uint32_t domain, uint64_t group) {
  const Philox4 r = philox4x32(seed, group, domain);
  Four out;
  for (int i = 0; i < 4; i += 2) {
    const float radius = sqrtf(-2.0f * logf(1.0f - unit_interval(r.word[i])));
    const float angle = 6.283185307179586f * unit_interval(r.word[i + 1]);
    out.value[i] = radius * cosf(angle);
    out.value[i + 1] = radius * sinf(angle);
  }
  return out;
}

}  // namespace veil
