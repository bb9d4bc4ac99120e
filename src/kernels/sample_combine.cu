#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // samples that are on their way together

template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads) combine_kernel(CombineSamples c) {
  using Real = RealOf<T>;
  const int64_t packs = c.numel / kWide, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  Real* const out = static_cast<Real*>(c.out);
  auto sum_at = [&](int64_t j, auto& sum, auto width) {
    constexpr int kCount = decltype(width)::value;
    for (int64_t first = 0; first < c.samples; first += kAtOnce) {
      Pack<T, kCount> pack[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        const int64_t i = first + a < c.samples ? first + a : first;
        pack[a] = load_pack<kCount>(static_cast<const T*>(c.x) + i * c.stride + j);
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        const Real factor =
            first + a < c.samples ? static_cast<Real>(c.coefficients[first + a]) : Real(0);
        if (factor == 0) continue;  // whatever its numbers are
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += factor * pack[a].at(k);
      }
    }
  };
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; p < packs;
       p += stride) {
    Real sum[kWide] = {};
    constexpr int kStore = kWide > 1 ? kWideOf<Real> : 1;
    if (c.add) {
#pragma unroll
      for (int from = 0; from < kWide; from += kStore) {
        const auto before = load_pack<kStore>(out + p * kWide + from);
#pragma unroll
        for (int k = 0; k < kStore; ++k) sum[from + k] = before.at(k);
      }
    }
    sum_at(p * kWide, sum, std::integral_constant<int, kWide>());
#pragma unroll
    for (int from = 0; from < kWide; from += kStore) {
      Real part[kStore];
#pragma unroll
      for (int k = 0; k < kStore; ++k) part[k] = sum[from + k];
      store_pack<kStore>(out + p * kWide + from, Pack<Real, kStore>::of(part));
    }
  }
  if constexpr (kWide > 1) {  // what is too little for a pack
    const int64_t j = packs * kWide + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (j < c.numel) {
      Real sum[1] = {c.add ? out[j] : Real(0)};
      sum_at(j, sum, std::integral_constant<int, 1>());
      out[j] = sum[0];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) scale_kernel(ScaleSamples s) {
  using Real = RealOf<T>;
  const int64_t total = s.samples * s.numel, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; k < total;
       k += stride) {
    const int64_t i = k / s.numel, j = k % s.numel;
    const double c = s.coefficients[i];
    const Real factor = s.select ? Real(1) : static_cast<Real>(c);
    static_cast<Real*>(s.out)[k] =
        c == 0 ? Real(0) : factor * real(static_cast<const T*>(s.x)[i * s.stride + j]);
  }
}

template <typename T>
struct RunScale {
  static void run(const ScaleSamples& s) {
    const int64_t blocks = (s.samples * s.numel + kThreads - 1) / kThreads;
    if (blocks == 0) return;
    scale_kernel<T><<<static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64), kThreads, 0,
                      static_cast<cudaStream_t>(s.stream)>>>(s);
    check_launch("scale_samples");
  }
};

template <typename T>
struct Run {
  static void run(const CombineSamples& c) {
    constexpr int kWide = kWideOf<T>;
    const bool packs = aligned(c.x) && aligned(c.out) && (c.samples <= 1 || c.stride % kWide == 0);
    const int64_t blocks = (c.numel / (packs ? kWide : 1) + kThreads) / kThreads;
    const auto grid = static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64);
    const auto stream = static_cast<cudaStream_t>(c.stream);
    if (c.numel == 0) return;
    if (packs) {
      combine_kernel<T, kWide><<<grid, kThreads, 0, stream>>>(c);
    } else {
      combine_kernel<T, 1><<<grid, kThreads, 0, stream>>>(c);
    }
    check_launch("combine_samples");
  }
};

}  // namespace

void combine_samples(const CombineSamples& combine) {
  for_element<Run>(combine.element, combine);
}
void scale_samples(const ScaleSamples& scale) {
  for_element<RunScale>(scale.element, scale);
}

}  // namespace veil::launch
