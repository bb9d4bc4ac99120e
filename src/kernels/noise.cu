#include "kernels/launch.h"
#include "kernels/noise_group.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;

// A thread makes one aligned group and adds what falls into the range. `packed`: whole groups can
// be reached by accesses of 16 bytes. The arithmetic is one piece of code for whole groups and for
// the ends, so that both round alike.
template <typename Real, NoiseGenerator kGenerator>
__global__ void __launch_bounds__(kThreads)
    noise_kernel(Real* out, int64_t numel, bool packed, const NoiseKnobs* knobs_at,
                 NoiseKnobs values, const __grid_constant__ NoiseKeys keys, uint32_t parameter,
                 int64_t first_element) {
  constexpr int kWide = kWideOf<Real>;
  const NoiseKnobs knobs = knobs_at ? *knobs_at : values;
  if (knobs.deviation == 0) return;
  const Real deviation = static_cast<Real>(knobs.deviation);
  const auto step = static_cast<uint64_t>(knobs.step);
  const Real anchor = noise_anchor<Real>(knobs.deviation);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t group =
      first_element / kNoiseGroup + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (;; group += stride) {
    const int64_t begin = group * kNoiseGroup - first_element;
    if (begin >= numel) return;
    const bool whole = packed && begin >= 0 && begin + kNoiseGroup <= numel;
    Real sum[kNoiseGroup] = {};
    if (whole) {
#pragma unroll
      for (int p = 0; p < kNoiseGroup / kWide; ++p) {
        const Pack<Real, kWide> pack = load_pack<kWide>(out + begin + p * kWide);
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum[p * kWide + k] = pack.at(k);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kNoiseGroup; ++k) {
        if (begin + k >= 0 && begin + k < numel) sum[k] = out[begin + k];
      }
    }
    const NoiseGroup<Real> noise =
        noise_group_on_device<Real, kGenerator>(keys, step, parameter, group, deviation);
#pragma unroll
    for (int k = 0; k < kNoiseGroup; ++k) {
      sum[k] += noise.value[k];
      if constexpr (kGenerator == NoiseGenerator::hardened) sum[k] = noise_snapped(sum[k], anchor);
    }
    if (whole) {
#pragma unroll
      for (int p = 0; p < kNoiseGroup / kWide; ++p) {
        Real part[kWide];
#pragma unroll
        for (int k = 0; k < kWide; ++k) part[k] = sum[p * kWide + k];
        store_pack(out + begin + p * kWide, Pack<Real, kWide>::of(part));
      }
    } else {
#pragma unroll
      for (int k = 0; k < kNoiseGroup; ++k) {
        if (begin + k >= 0 && begin + k < numel) out[begin + k] = sum[k];
      }
    }
  }
}

template <typename Real, NoiseGenerator kGenerator>
void run_with(const Noise& n) {
  auto* const out = static_cast<Real*>(n.out);
  const int64_t groups = n.numel / kNoiseGroup + 2, blocks = (groups + kThreads - 1) / kThreads;
  const int64_t into_group = n.first_element % kNoiseGroup;
  // where the first whole group begins
  const bool packed = aligned(out + (into_group == 0 ? 0 : kNoiseGroup - into_group));
  noise_kernel<Real, kGenerator><<<static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64),
                                   kThreads, 0, static_cast<cudaStream_t>(n.stream)>>>(
      out, n.numel, packed, n.knobs, n.values, n.keys, n.parameter, n.first_element);
  check_launch("add_noise");
}

template <typename Real>
void run(const Noise& n) {
  switch (n.keys.generator) {
    case NoiseGenerator::secure:
      return run_with<Real, NoiseGenerator::secure>(n);
    case NoiseGenerator::hardened:
      return run_with<Real, NoiseGenerator::hardened>(n);
    case NoiseGenerator::philox:
      return run_with<Real, NoiseGenerator::philox>(n);
  }
}

}  // namespace

void add_noise(const Noise& noise) {
  if (noise.numel == 0) return;
  if (noise.element == Element::fp64) return run<double>(noise);
  run<float>(noise);
}

}  // namespace veil::launch
