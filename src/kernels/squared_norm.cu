#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;

// The last elements, too few for a pack, are taken by the first threads.
template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads)
    partial_kernel(const T* x, int64_t numel, double* partial) {
  const int64_t packs = numel / kWide, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  double sum = 0;
#pragma unroll 4
  for (int64_t p = first; p < packs; p += stride) {
    const auto pack = load_pack<kWide>(x + p * kWide);
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const double value = static_cast<double>(pack.at(k));
      sum += value * value;
    }
  }
  if (first < numel - packs * kWide) {
    const double value = static_cast<double>(real(x[packs * kWide + first]));
    sum += value * value;
  }
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    finish_kernel(const double* partial, int64_t blocks, double* total) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < blocks; b += kThreads) sum += partial[b];
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) *total += sum;
}

template <typename T>
struct Run {
  static void run(const SquaredNorm& n) {
    const int64_t blocks = squared_norm_blocks(n.numel);
    const auto grid = static_cast<unsigned>(blocks);
    const auto stream = static_cast<cudaStream_t>(n.stream);
    const T* x = static_cast<const T*>(n.x);
    if (aligned(n.x)) {
      partial_kernel<T, kWideOf<T>><<<grid, kThreads, 0, stream>>>(x, n.numel, n.partial);
    } else {
      partial_kernel<T, 1><<<grid, kThreads, 0, stream>>>(x, n.numel, n.partial);
    }
    check_launch("add_squared_norm");
    finish_kernel<<<1, kThreads, 0, stream>>>(n.partial, blocks, n.total);
    check_launch("add_squared_norm");
  }
};

}  // namespace

void add_squared_norm(const SquaredNorm& norm) {
  for_element<Run>(norm.element, norm);
}

namespace {

__global__ void clip_scale_kernel(StepKnobs* knobs) {
  knobs->update.scale = clipped_scale(*knobs);
}

}  // namespace

void clip_scale(StepKnobs* knobs, void* stream) {
  clip_scale_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(knobs);
  check_launch("clip_scale");
}

}  // namespace veil::launch
