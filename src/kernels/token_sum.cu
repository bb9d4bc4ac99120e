#include "kernels/launch.h"
#include "kernels/strip_sums.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;

// A thread a pack of columns, a block a strip of one sample's tokens.
template <typename T, int kWide>
__global__ void token_sum_kernel(TokenSum s, int64_t strips, int64_t rows, RealOf<T>* sums) {
  using Real = RealOf<T>;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWide;
  if (column >= s.width) return;
  const int64_t sample = blockIdx.x / strips, begin = blockIdx.x % strips * rows;
  const int64_t end = begin + rows < s.tokens ? begin + rows : s.tokens;
  const T* x = static_cast<const T*>(s.x) + sample * s.batch_stride + column;
  Real sum[kWide] = {};
#pragma unroll 4
  for (int64_t t = begin; t < end; ++t) {
    const auto pack = load_pack<kWide>(x + t * s.token_stride);
#pragma unroll
    for (int k = 0; k < kWide; ++k) sum[k] += pack.at(k);
  }
#pragma unroll
  for (int k = 0; k < kWide; ++k)
    sums[static_cast<int64_t>(blockIdx.x) * s.width + column + k] = sum[k];
}

template <typename T>
struct Run {
  static void run(const TokenSum& s) {
    using Real = RealOf<T>;
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(s.stream);
    const int64_t strips = sample_strips(s.batch, s.tokens);
    const int64_t rows = strips == 1 ? s.tokens : strip_rows(s.batch, s.tokens);
    Real *out = static_cast<Real*>(s.out),
         *sums = strips == 1 ? out : static_cast<Real*>(s.partial);
    const bool packs = aligned(s.x) && s.width % kWide == 0 && s.batch_stride % kWide == 0 &&
                       s.token_stride % kWide == 0;
    const int64_t columns = kThreads * (packs ? kWide : 1);
    const dim3 grid(static_cast<unsigned>(s.batch * strips),
                    static_cast<unsigned>((s.width + columns - 1) / columns));
    if (packs) {
      token_sum_kernel<T, kWide><<<grid, kThreads, 0, stream>>>(s, strips, rows, sums);
    } else {
      token_sum_kernel<T, 1><<<grid, kThreads, 0, stream>>>(s, strips, rows, sums);
    }
    check_launch("token_sum");
    if (strips > 1) add_strips<Real>(sums, out, nullptr, s.batch, strips, s.width, stream);
  }
};

}  // namespace

void token_sum(const TokenSum& sum) {
  for_element<Run>(sum.element, sum);
}

}  // namespace veil::launch
