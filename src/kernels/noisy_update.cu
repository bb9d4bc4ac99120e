#include "kernels/four.cuh"
#include "kernels/launch_check.h"
#include "kernels/launch_clip.h"
#include "kernels/pack.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;
constexpr int kFours = kNoiseGroup / kFour;

// Elements [at, at + 4) of a range of `numel` that begins at `from`; those outside it are neither read nor written. `whole`: all inside, and one access is allowed.
template <typename T>
__device__ __forceinline__ Four<T> load_inside(const T* from, int64_t at, int64_t numel, bool whole) {
  if (whole) return *reinterpret_cast<const Four<T>*>(from + at);
  Four<T> four = {};
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (at + k >= 0 && at + k < numel) four.value[k] = from[at + k];
  }
  return four;
}
template <typename T>
__device__ __forceinline__ void store_inside(T* to, int64_t at, int64_t numel, const Four<T>& four, bool whole) {
  if (whole) {
    *reinterpret_cast<Four<T>*>(to + at) = four;
    return;
  }
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (at + k >= 0 && at + k < numel) to[at + k] = four.value[k];
  }
}

// The first elements of a group may lie before the range, at an index below 0: they are not stored, but must not shift the others.
__device__ __forceinline__ FourBits rounding_bits_around(const UpdateRule& rule, const UpdateKnobs& knobs,
                                                         int64_t index) {
  if (index >= 0) return rounding_bits_of_four(rule, knobs, index);
  FourBits bits = {};
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (index + k >= 0) bits.value[k] = rounding_bits(rule, knobs, index + k);
  }
  return bits;
}

// A thread makes one aligned group of normals and updates what of it falls into the range. The arithmetic is one piece of code for whole groups and for the ends.
template <typename Param, typename Grad, typename Real, NoiseGenerator kGenerator>
__global__ void __launch_bounds__(kThreads) noisy_update_kernel(NoisyUpdate u, bool packed) {
  const UpdateKnobs knobs = *reinterpret_cast<const UpdateKnobs*>(u.knobs);
  const NoiseKnobs noise = *reinterpret_cast<const NoiseKnobs*>(u.noise_knobs);
  const Real deviation = static_cast<Real>(noise.deviation);
  const auto* grad = static_cast<const Grad*>(u.grad);
  auto* param = static_cast<Param*>(u.param);
  auto *m_at = static_cast<Real*>(u.m), *v_at = static_cast<Real*>(u.v);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t group = u.first_element / kNoiseGroup + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (;; group += stride) {
    const int64_t begin = group * kNoiseGroup - u.first_element;
    if (begin >= u.numel) return;
    const bool whole = packed && begin >= 0 && begin + kNoiseGroup <= u.numel;
    Real sum[kNoiseGroup] = {};
    if (u.samples == 0) {
#pragma unroll
      for (int q = 0; q < kFours; ++q) {
        const Four<Grad> g = load_inside(grad, begin + q * kFour, u.numel, whole);
#pragma unroll
        for (int k = 0; k < kFour; ++k) sum[q * kFour + k] = static_cast<Real>(g.value[k]);
      }
    }
#pragma unroll 2
    for (int64_t s = 0; s < u.samples; ++s) {
      const Real factor = static_cast<Real>(u.coefficients[s]);
      if (factor == 0) continue;
#pragma unroll
      for (int q = 0; q < kFours; ++q) {
        const Four<Grad> g = load_inside(grad + s * u.stride, begin + q * kFour, u.numel, whole);
#pragma unroll
        for (int k = 0; k < kFour; ++k) sum[q * kFour + k] += factor * static_cast<Real>(g.value[k]);
      }
    }
    if (deviation != 0) {
      const NoiseGroup<Real> normals =
          noise_group<Real>(kGenerator, u.key, static_cast<uint64_t>(noise.step), u.parameter, static_cast<uint64_t>(group));
#pragma unroll
      for (int k = 0; k < kNoiseGroup; ++k) sum[k] += deviation * normals.value[k];
    }
#pragma unroll
    for (int q = 0; q < kFours; ++q) {
      const int64_t at = begin + q * kFour;
      const Four<Param> p = load_inside(param, at, u.numel, whole);
      Four<Real> m = {}, v = {};
      if (m_at) m = load_inside(m_at, at, u.numel, whole);
      if (v_at) v = load_inside(v_at, at, u.numel, whole);
      FourBits bits = {};
      if constexpr (sizeof(Param) == 2) bits = rounding_bits_around(u.rule, knobs, u.first_index + at);
      Four<Param> updated;
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        const Real value = updated_param<Real>(u.rule, knobs, static_cast<Real>(p.value[k]), sum[q * kFour + k],
                                               m.value[k], v.value[k]);
        store(&updated.value[k], value, bits.value[k] & 0xFFFFu);
      }
      if (m_at) store_inside(m_at, at, u.numel, m, whole);
      if (v_at) store_inside(v_at, at, u.numel, v, whole);
      store_inside(param, at, u.numel, updated, whole);
    }
  }
}

template <typename Param, typename Grad, typename Real>
void run(const NoisyUpdate& u) {
  auto allows = [](const void* at, int64_t size) {
    const int64_t bytes = size * kFour < 16 ? size * kFour : 16;
    return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0;
  };
  const bool packed = u.first_element % kFour == 0 && allows(u.param, sizeof(Param)) && allows(u.grad, sizeof(Grad)) &&
                      allows(u.m, sizeof(Real)) && allows(u.v, sizeof(Real)) && u.stride % kFour == 0;
  const int64_t groups = u.numel / kNoiseGroup + 2, blocks = (groups + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(blocks < 132 * 256 ? blocks : 132 * 256);
  const auto stream = static_cast<cudaStream_t>(u.stream);
  if (u.generator == NoiseGenerator::secure) {
    noisy_update_kernel<Param, Grad, Real, NoiseGenerator::secure><<<grid, kThreads, 0, stream>>>(u, packed);
  } else {
    noisy_update_kernel<Param, Grad, Real, NoiseGenerator::philox><<<grid, kThreads, 0, stream>>>(u, packed);
  }
  check_launch("noisy_update");
}

template <typename Grad>
struct Run {
  static void run(const NoisyUpdate& u) {
    switch (u.param_element) {
      case Element::fp32:
        return launch::run<float, Grad, float>(u);
      case Element::fp64:
        return launch::run<double, Grad, double>(u);
      default:
        return launch::run<__nv_bfloat16, Grad, float>(u);
    }
  }
};

}  // namespace

void noisy_update(const NoisyUpdate& update) {
  if (update.numel == 0) return;
  for_element<Run>(update.grad_element, update);
}

}  // namespace veil::launch
