// Sixteen bytes of elements at once, and sums over a block's threads in a fixed order. For .cu
// files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/launch.h"

namespace veil::launch {

template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The two elements of a word, and the word of two elements: types of two bytes stay packed in
// registers, two to each.
__device__ __forceinline__ float low_of(uint32_t word, __nv_bfloat16) {
  return __uint_as_float(word << 16);
}
__device__ __forceinline__ float high_of(uint32_t word, __nv_bfloat16) {
  return __uint_as_float(word & 0xFFFF0000u);
}
__device__ __forceinline__ uint32_t word_of(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float low_of(uint32_t word, __half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
}
__device__ __forceinline__ float high_of(uint32_t word, __half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
}
__device__ __forceinline__ uint32_t word_of(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <typename T>
inline constexpr int kWideOf = 16 / static_cast<int>(sizeof(T));  // elements in a pack of 16 bytes

// kWide elements of one type: 16 bytes loaded and stored at once, or a single element.
template <typename T, int kWide>
struct alignas(sizeof(T) * kWide) Pack {
  static constexpr bool kWords = sizeof(T) == 2 && kWide > 1;
  std::conditional_t<kWords, uint32_t, T> kept[kWords ? kWide / 2 : kWide];

  __device__ __forceinline__ RealOf<T> at(int k) const {
    if constexpr (kWords) {
      return k % 2 ? high_of(kept[k / 2], T()) : low_of(kept[k / 2], T());
    } else {
      return static_cast<RealOf<T>>(kept[k]);
    }
  }
  // The values, rounded to T.
  static __device__ __forceinline__ Pack of(const RealOf<T> (&values)[kWide]) {
    Pack pack;
    if constexpr (kWords) {
#pragma unroll
      for (int w = 0; w < kWide / 2; ++w)
        pack.kept[w] = word_of(values[2 * w], values[2 * w + 1], T());
    } else {
#pragma unroll
      for (int k = 0; k < kWide; ++k) pack.kept[k] = static_cast<T>(values[k]);
    }
    return pack;
  }
};

template <int kWide, typename T>
__device__ __forceinline__ Pack<T, kWide> load_pack(const T* at) {
  return *reinterpret_cast<const Pack<T, kWide>*>(at);
}
template <int kWide, typename T>
__device__ __forceinline__ void store_pack(T* at, const Pack<T, kWide>& pack) {
  if constexpr (sizeof(pack) == 16) {
    // one store, never four
    __stwb(reinterpret_cast<uint4*>(at), *reinterpret_cast<const uint4*>(&pack));
  } else {
    *reinterpret_cast<Pack<T, kWide>*>(at) = pack;
  }
}
template <typename T>
__device__ __forceinline__ RealOf<T> real(T value) {
  return static_cast<RealOf<T>>(value);
}
template <typename T>
__device__ __forceinline__ T rounded(RealOf<T> value) {
  return static_cast<T>(value);
}

// Whether packs of 16 bytes can be read at `at`; null is no obstacle.
inline bool aligned(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0;
}

// The sum over a warp, in every lane; the same bits in all, for a + b is b + a.
template <typename Real>
__device__ __forceinline__ Real warp_sum(Real value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

// Sums of kCount values over the block's x dimension, in every thread. `lanes` is shared memory for
// kCount * 32 values, which the next call must not use again before the block has met once: callers
// alternate between two. A dimension of one warp meets nobody.
template <int kCount, typename Real>
__device__ __forceinline__ void block_sum(Real (&value)[kCount], Real* lanes) {
  for (int c = 0; c < kCount; ++c) value[c] = warp_sum(value[c]);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (warps == 1) return;
  if (threadIdx.x % 32 == 0) {
    for (int c = 0; c < kCount; ++c) lanes[c * 32 + threadIdx.x / 32] = value[c];
  }
  __syncthreads();
  for (int c = 0; c < kCount; ++c) {
    value[c] = lanes[c * 32];
    for (int w = 1; w < warps; ++w) value[c] += lanes[c * 32 + w];
  }
}

// Of one value; once between two meetings of the block.
__device__ __forceinline__ double whole_block_sum(double value) {
  __shared__ double lanes[32];
  double values[1] = {value};
  block_sum(values, lanes);
  return values[0];
}

// Calls run<T>() of `Run` for the element's type.
template <template <typename> class Run, typename Arguments>
void for_element(Element element, const Arguments& arguments) {
  switch (element) {
    case Element::fp32:
      return Run<float>::run(arguments);
    case Element::fp64:
      return Run<double>::run(arguments);
    case Element::bf16:
      return Run<__nv_bfloat16>::run(arguments);
    case Element::fp16:
      return Run<__half>::run(arguments);
  }
}

}  // namespace veil::launch
