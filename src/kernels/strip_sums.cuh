// Sums over each sample's rows, made in strips of consecutive rows, and the strips' sums added in
// order. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {

inline constexpr int kStripColumns = 32, kStripGroups = 16;  // at most so many groups

// out[i, j] = the sum of partial[i, s, j] over s; blockIdx.z chooses the first or the second pair.
// A group of threads takes consecutive strips; the groups' sums are added in order.
template <typename Real>
__global__ void add_strips_kernel(const Real* partial, Real* first, Real* second, int64_t strips,
                                  int64_t width, int64_t first_stride, int64_t second_stride) {
  __shared__ Real sums[kStripGroups][kStripColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStripColumns + threadIdx.x;
  const int groups = static_cast<int>(blockDim.y);
  const int64_t each = (strips + groups - 1) / groups;
  const int64_t begin = threadIdx.y * each, end = begin + each < strips ? begin + each : strips;
  Real sum = 0;
  if (column < width) {
    const int64_t sample = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
    const Real* at = partial + sample * strips * width + column;
#pragma unroll 8
    for (int64_t s = begin; s < end; ++s) sum += at[s * width];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int g = 1; g < groups; ++g) sum += sums[g][threadIdx.x];
  if (blockIdx.z == 0) {
    first[blockIdx.y * first_stride + column] = sum;
  } else {
    second[blockIdx.y * second_stride + column] = sum;
  }
}

// partial [batch, strips, width], and the same again for `second` if it is not null. At most
// 65535 samples. The results' rows lie `width` apart, or as the strides say.
template <typename Real>
void add_strips(const Real* partial, Real* first, Real* second, int64_t batch, int64_t strips,
                int64_t width, cudaStream_t stream, int64_t first_stride = 0,
                int64_t second_stride = 0) {
  const dim3 grid(static_cast<unsigned>((width + kStripColumns - 1) / kStripColumns),
                  static_cast<unsigned>(batch), second ? 2 : 1);
  constexpr int64_t kEach = 8;  // strips that a group reads at once
  const int64_t full = (strips + kEach - 1) / kEach;
  const auto groups = static_cast<unsigned>(full < kStripGroups ? full : kStripGroups);
  add_strips_kernel<Real><<<grid, dim3(kStripColumns, groups), 0, stream>>>(
      partial, first, second, strips, width, first_stride ? first_stride : width,
      second_stride ? second_stride : width);
  check_launch("add_strips");
}

inline constexpr int kStripThreads = 128;

// a + b, whatever b was made of: a product is not fused into the sum, so that it has the bits of a
// sum over what was stored.
__device__ __forceinline__ float added(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ double added(double a, double b) {
  return __dadd_rn(a, b);
}

// One thread per pack of columns, one block per strip of a sample's rows. Several rows are read
// before the first of them is stored.
template <typename T, int kWide, typename Rows>
__global__ void __launch_bounds__(kStripThreads)
    strip_kernel(const __grid_constant__ Rows rows, int64_t count, int64_t width, int64_t strips,
                 int64_t a_strip, RealOf<T>* sums) {
  using Real = RealOf<T>;
  constexpr int kAtOnce = 4;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kStripThreads + threadIdx.x) * kWide;
  if (column >= width) return;
  const int64_t sample = blockIdx.x / strips, begin = blockIdx.x % strips * a_strip;
  const int64_t end = begin + a_strip < count ? begin + a_strip : count;
  const auto here = rows.at(sample, column);
  Real sum[kWide] = {};
  for (int64_t from = begin; from < end; from += kAtOnce) {
    decltype(here.template read<kWide>(0)) read[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (from + k < end) read[k] = here.template read<kWide>(from + k);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (from + k < end) {
        const Pack<T, kWide> pack = here.store(from + k, read[k]);
#pragma unroll
        for (int c = 0; c < kWide; ++c) sum[c] = added(sum[c], pack.at(c));
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kWide; ++c)
    sums[static_cast<int64_t>(blockIdx.x) * width + column + c] = sum[c];
}

// rows.at(sample, column) reads what is there in a row and stores what it makes of it, if anything.
// out [batch, width] gets the sums over rows of what it says it stored. `packs`: addresses allow
// accesses of 16 bytes. `partial`: as TokenSum has it.
template <typename T, typename Rows>
void sum_strips(const Rows& rows, int64_t batch, int64_t count, int64_t width, bool packs,
                void* out, void* partial, void* on_stream) {
  using Real = RealOf<T>;
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(on_stream);
  const int64_t strips = sample_strips(batch, count);
  const int64_t a_strip = strips == 1 ? count : strip_rows(batch, count);
  Real *all = static_cast<Real*>(out), *sums = strips == 1 ? all : static_cast<Real*>(partial);
  const int64_t columns = kStripThreads * (packs ? kWide : 1);
  const dim3 grid(static_cast<unsigned>(batch * strips),
                  static_cast<unsigned>((width + columns - 1) / columns));
  if (packs) {
    strip_kernel<T, kWide>
        <<<grid, kStripThreads, 0, stream>>>(rows, count, width, strips, a_strip, sums);
  } else {
    strip_kernel<T, 1>
        <<<grid, kStripThreads, 0, stream>>>(rows, count, width, strips, a_strip, sums);
  }
  check_launch("sum_strips");
  if (strips > 1) add_strips<Real>(sums, all, nullptr, batch, strips, width, stream);
}

}  // namespace veil::launch
