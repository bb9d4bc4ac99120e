// The second half of sums over a sample's rows: strips' sums added in order. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/launch.h"

namespace veil::launch {

inline constexpr int kStripColumns = 32, kStripGroups = 16;

// out[i, j] = the sum of partial[i, s, j] over s; blockIdx.z chooses the first or the second pair.
// A group of threads takes consecutive strips; the groups' sums are added in order.
template <typename Real>
__global__ void add_strips_kernel(const Real* partial, Real* first, Real* second, int64_t strips,
                                  int64_t width, int64_t first_stride, int64_t second_stride) {
  __shared__ Real sums[kStripGroups][kStripColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStripColumns + threadIdx.x;
  const int64_t each = (strips + kStripGroups - 1) / kStripGroups;
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
  for (int g = 1; g < kStripGroups; ++g) sum += sums[g][threadIdx.x];
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
  add_strips_kernel<Real><<<grid, dim3(kStripColumns, kStripGroups), 0, stream>>>(
      partial, first, second, strips, width, first_stride ? first_stride : width,
      second_stride ? second_stride : width);
  check_launch("add_strips");
}

}  // namespace veil::launch
