#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/launch.h"
#include "kernels/random_values.h"

namespace veil::launch {
namespace {

// A thread makes one aligned group of four and keeps what falls into the range.
template <typename T>
__global__ void fill_kernel(T* out, int64_t numel, bool normal, float scale, uint64_t seed,
                            uint32_t domain, int64_t first_index) {
  const int64_t group =
      first_index / 4 + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t begin = group * 4 - first_index;
  if (begin >= numel) return;
  const Four four = normal ? normal_four(seed, domain, group) : uniform_four(seed, domain, group);
  for (int k = 0; k < 4; ++k) {
    const int64_t i = begin + k;
    if (i >= 0 && i < numel) out[i] = static_cast<T>(four.value[k] * scale);
  }
}

template <typename T>
void run(const RandomFill& f) {
  const int64_t groups = f.numel / 4 + 2;
  const int threads = 256;
  fill_kernel<T><<<static_cast<unsigned>((groups + threads - 1) / threads), threads, 0,
                   static_cast<cudaStream_t>(f.stream)>>>(static_cast<T*>(f.out), f.numel, f.normal,
                                                          f.scale, f.seed, f.domain, f.first_index);
  check_launch("random_fill");
}

}  // namespace

void random_fill(const RandomFill& fill) {
  if (fill.numel == 0) return;
  switch (fill.element) {
    case Element::fp32:
      return run<float>(fill);
    case Element::fp64:
      return run<double>(fill);
    case Element::bf16:
      return run<__nv_bfloat16>(fill);
    case Element::fp16:
      return run<__half>(fill);
  }
}

}  // namespace veil::launch
