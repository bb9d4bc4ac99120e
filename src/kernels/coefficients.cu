#include "kernels/launch.h"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;

// One block. Each thread has some samples; the first one adds what they count, in order of the
// threads.
__global__ void __launch_bounds__(kThreads) coefficients_kernel(Coefficients c) {
  __shared__ ClipTally counts[kThreads];
  ClipTally own = {};
  for (int64_t i = threadIdx.x; i < c.samples; i += kThreads)
    sample_coefficients(c.squared, c.layers, c.clip_norms, c.counted, c.coefficients, &own,
                        c.params, c.samples, c.first_layer, c.end_layer, c.function, i);
  counts[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x != 0 || !c.last) return;
  for (int t = 0; t < kThreads; ++t) add_tally(*c.tally, counts[t]);
}

}  // namespace

void clip_coefficients(const Coefficients& coefficients) {
  coefficients_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(coefficients.stream)>>>(
      coefficients);
  check_launch("clip_coefficients");
}

}  // namespace veil::launch
