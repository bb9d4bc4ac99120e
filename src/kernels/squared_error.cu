#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/launch.h"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;

// Sum over the block in a fixed order; the result is thread 0's.
__device__ double block_sum(double value) {
  __shared__ double lanes[kThreads];
  lanes[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    __syncthreads();
  }
  return lanes[0];
}

// A block per sample.
template <typename T, typename Real>
__global__ void squared_error_kernel(const T* output, const T* target, T* grad, double* losses,
                                     int64_t width) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  const Real scale = Real(2) / static_cast<Real>(width);
  double sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const Real difference = static_cast<Real>(output[row + j]) - static_cast<Real>(target[row + j]);
    sum += static_cast<double>(difference) * static_cast<double>(difference);
    grad[row + j] = static_cast<T>(difference * scale);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[blockIdx.x] = sum / static_cast<double>(width);
}

__global__ void add_losses_kernel(const double* losses, int64_t batch, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < batch; i += kThreads) sum += losses[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total += sum;
}

template <typename T, typename Real>
void run(const SquaredError& e) {
  squared_error_kernel<T, Real>
      <<<static_cast<unsigned>(e.batch), kThreads, 0, static_cast<cudaStream_t>(e.stream)>>>(
          static_cast<const T*>(e.output), static_cast<const T*>(e.target), static_cast<T*>(e.grad),
          e.losses, e.width);
  check_launch("squared_error");
}

}  // namespace

void squared_error(const SquaredError& e) {
  if (e.batch == 0) return;
  switch (e.element) {
    case Element::fp32:
      return run<float, float>(e);
    case Element::fp64:
      return run<double, double>(e);
    case Element::bf16:
      return run<__nv_bfloat16, float>(e);
    case Element::fp16:
      return run<__half, float>(e);
  }
}

void add_losses(const double* losses, int64_t batch, double* total, void* stream) {
  add_losses_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(losses, batch, total);
  check_launch("add_losses");
}

}  // namespace veil::launch
