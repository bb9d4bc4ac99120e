// Four neighbours at once, and what rounds them: shared by the kernels that update parameters. For
// .cu files.
#pragma once

#include <cuda_bf16.h>

#include "kernels/update_rule.h"

namespace veil::launch {

inline constexpr int kFour = 4;

__device__ __forceinline__ void store(float* at, float value, uint32_t) {
  *at = value;
}
__device__ __forceinline__ void store(double* at, double value, uint32_t) {
  *at = value;
}
__device__ __forceinline__ void store(__nv_bfloat16* at, float value, uint32_t random) {
  *at = __ushort_as_bfloat16(round_to_bf16_stochastically(__float_as_uint(value), random));
}

// Four neighbours, by accesses of 16 bytes at most.
template <typename T>
struct alignas(sizeof(T) * kFour < 16 ? sizeof(T) * kFour : 16) Four {
  T value[kFour];
};

// rounding_bits of kCount neighbours, a multiple of four. They are whole halves of a draw if
// `index` is a multiple of four; elsewhere, as at an index below 0, each is made by itself.
template <int kCount>
struct Bits {
  uint32_t value[kCount];
};
// Those of whole draws: `index` is a multiple of 8.
template <int kCount>
__device__ __forceinline__ Bits<kCount> whole_rounding_bits(const UpdateRule& rule,
                                                            const UpdateKnobs& knobs,
                                                            int64_t index) {
  static_assert(kCount % kRoundingGroup == 0);
  Bits<kCount> bits;
#pragma unroll
  for (int d = 0; d < kCount / kRoundingGroup; ++d) {
    const Philox4 draw = rounding_words(rule, knobs, index + d * kRoundingGroup);
#pragma unroll
    for (int k = 0; k < kRoundingGroup; ++k)
      bits.value[d * kRoundingGroup + k] = draw.word[k / 2] >> (k % 2 * 16) & 0xFFFFu;
  }
  return bits;
}
// The bits of another rounding of the same elements, from those of whole draws.
template <int kCount>
__device__ __forceinline__ Bits<kCount> turned(const Bits<kCount>& bits, Rounded what) {
  static_assert(kCount % kRoundingGroup == 0);
  Bits<kCount> other;
#pragma unroll
  for (int k = 0; k < kCount; ++k)
    other.value[k] = bits.value[k / kRoundingGroup * kRoundingGroup +
                                (k + static_cast<int>(what)) % kRoundingGroup];
  return other;
}
// Those of any range, element by element.
template <int kCount>
__device__ __forceinline__ Bits<kCount> single_rounding_bits(const UpdateRule& rule,
                                                             const UpdateKnobs& knobs,
                                                             int64_t index, Rounded what) {
  Bits<kCount> bits = {};
#pragma unroll 1
  for (int k = 0; k < kCount; ++k) {
    if (index + k >= 0) bits.value[k] = rounding_bits(rule, knobs, index + k, what);
  }
  return bits;
}
template <int kCount>
__device__ __forceinline__ Bits<kCount> rounding_bits_of(const UpdateRule& rule,
                                                         const UpdateKnobs& knobs, int64_t index) {
  Bits<kCount> bits = {};
  if (index < 0 || index % kFour != 0) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (index + k >= 0) bits.value[k] = rounding_bits(rule, knobs, index + k);
    }
    return bits;
  }
  // that a range which begins in the middle of one can touch
  constexpr int kDraws = (kCount + 4 + 7) / 8;
  uint32_t words[kDraws * 4];
  const bool middle = index % kRoundingGroup != 0;
#pragma unroll
  for (int d = 0; d < kDraws; ++d) {
    if (d * 8 >= kCount + (middle ? 4 : 0)) continue;
    const Philox4 draw = rounding_words(rule, knobs, index + d * kRoundingGroup);
#pragma unroll
    for (int w = 0; w < 4; ++w) words[d * 4 + w] = draw.word[w];
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int place = k / 2;
    const uint32_t word = middle ? words[place + 2 < kDraws * 4 ? place + 2 : place] : words[place];
    bits.value[k] = word >> (k % 2 * 16) & 0xFFFFu;
  }
  return bits;
}

}  // namespace veil::launch
