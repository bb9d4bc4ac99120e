// Four neighbours at once, and what rounds them: shared by the kernels that update parameters. For .cu files.
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

// `whole`: the group lies within the range and its address allows one access; otherwise `count` elements one by one.
template <typename T>
__device__ __forceinline__ Four<T> load_four(const T* at, bool whole, int count) {
  if (whole) return *reinterpret_cast<const Four<T>*>(at);
  Four<T> four = {};
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (k < count) four.value[k] = at[k];
  }
  return four;
}
template <typename T>
__device__ __forceinline__ void store_four(T* at, const Four<T>& four, bool whole, int count) {
  if (whole) {
    *reinterpret_cast<Four<T>*>(at) = four;
    return;
  }
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (k < count) at[k] = four.value[k];
  }
}

// rounding_bits of four neighbours: they come from one draw of four words where `index` is a multiple of four, otherwise from two.
struct FourBits {
  uint32_t value[kFour];
};
__device__ __forceinline__ FourBits rounding_bits_of_four(const UpdateRule& rule, const UpdateKnobs& knobs,
                                                          int64_t index) {
  const int shift = static_cast<int>(index % kFour);
  const Philox4 here = rounding_words(rule, knobs, index);
  if (shift == 0) return {{here.word[0], here.word[1], here.word[2], here.word[3]}};
  const Philox4 next = rounding_words(rule, knobs, index + kFour);
  if (shift == 1) return {{here.word[1], here.word[2], here.word[3], next.word[0]}};
  if (shift == 2) return {{here.word[2], here.word[3], next.word[0], next.word[1]}};
  return {{here.word[3], next.word[0], next.word[1], next.word[2]}};
}

}  // namespace veil::launch
