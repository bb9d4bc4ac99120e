// Sixteen bytes of elements at once, and sums over a block's threads in a fixed order. For .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/element.h"

namespace veil::launch {

template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// kWide elements of one type, loaded and stored by accesses of up to 16 bytes: by one where kWide is the 16 bytes' worth, by plain ones where it is 1.
template <typename T, int kWide>
struct alignas(sizeof(T) * kWide < 16 ? sizeof(T) * kWide : 16) Pack {
  T value[kWide];
};
template <typename T>
inline constexpr int kWideOf = 16 / static_cast<int>(sizeof(T));  // elements in a pack of 16 bytes

template <int kWide, typename T>
__device__ __forceinline__ Pack<T, kWide> load_pack(const T* at) {
  return *reinterpret_cast<const Pack<T, kWide>*>(at);
}
template <int kWide, typename T>
__device__ __forceinline__ void store_pack(T* at, const Pack<T, kWide>& pack) {
  *reinterpret_cast<Pack<T, kWide>*>(at) = pack;
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
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

// Sums of kCount values over the block's x dimension, in every thread. `lanes` is shared memory for kCount * 32 values, which the next call must not use again
// before the block has met once: callers alternate between two. A dimension of one warp meets nobody.
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
