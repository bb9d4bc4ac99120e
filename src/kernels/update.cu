#include "kernels/launch.h"
#include "kernels/launch_check.h"
#include "kernels/pack.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;  // elements a thread takes at once

__device__ inline void store(float* at, float value, uint32_t) {
  *at = value;
}
__device__ inline void store(double* at, double value, uint32_t) {
  *at = value;
}
__device__ inline void store(__nv_bfloat16* at, float value, uint32_t random) {
  *at = __ushort_as_bfloat16(round_to_bf16_stochastically(__float_as_uint(value), random));
}

// Four neighbours, by accesses of 16 bytes at most.
template <typename T>
struct alignas(sizeof(T) * kGroup < 16 ? sizeof(T) * kGroup : 16) Four {
  T value[kGroup];
};

// `whole`: the group lies within the range and its address allows one access; otherwise `count` elements one by one.
template <typename T>
__device__ __forceinline__ Four<T> load_four(const T* at, bool whole, int count) {
  if (whole) return *reinterpret_cast<const Four<T>*>(at);
  Four<T> four = {};
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    if (k < count) four.value[k] = at[k];
  }
  return four;
}
template <typename T>
__device__ __forceinline__ void store_four(T* at, const Four<T>& four, bool whole, int count) {
  if (whole) {
    *reinterpret_cast<Four<T>*>(at) = four;
    return;
  }
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    if (k < count) at[k] = four.value[k];
  }
}

// rounding_bits of four neighbours: they come from one draw of four words where `index` is a multiple of four, otherwise from two.
struct FourBits {
  uint32_t value[kGroup];
};
__device__ __forceinline__ FourBits rounding_bits_of_four(const UpdateRule& rule, const UpdateKnobs& knobs,
                                                          int64_t index) {
  const int shift = static_cast<int>(index % kGroup);
  const Philox4 here = rounding_words(rule, knobs, index);
  if (shift == 0) return {{here.word[0], here.word[1], here.word[2], here.word[3]}};
  const Philox4 next = rounding_words(rule, knobs, index + kGroup);
  if (shift == 1) return {{here.word[1], here.word[2], here.word[3], next.word[0]}};
  if (shift == 2) return {{here.word[2], here.word[3], next.word[0], next.word[1]}};
  return {{here.word[3], next.word[0], next.word[1], next.word[2]}};
}

// `packed`: all addresses allow groups. The arithmetic is one piece of code for whole groups and for what is left, so that both round alike.
template <typename Param, typename Grad, typename Real>
__global__ void __launch_bounds__(kThreads)
    update_kernel(Param* param, const Grad* grad, Real* state, int64_t numel, bool packed, const double* knobs_at,
                  UpdateRule rule, int64_t first_index) {
  const UpdateKnobs knobs = *reinterpret_cast<const UpdateKnobs*>(knobs_at);
  const bool has_m = rule.kind != OptimizerKind::sgd, has_v = rule.kind == OptimizerKind::adamw;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kGroup;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < numel; i += stride) {
    const int count = numel - i < kGroup ? static_cast<int>(numel - i) : kGroup;
    const bool whole = packed && count == kGroup;
    const Four<Param> p = load_four(param + i, whole, count);
    const Four<Grad> g = load_four(grad + i, whole, count);
    Four<Real> m = {}, v = {};
    if (has_m) m = load_four(state + i, whole, count);
    if (has_v) v = load_four(state + numel + i, whole, count);
    Four<Param> updated;
    FourBits bits = {};
    if constexpr (sizeof(Param) == 2) bits = rounding_bits_of_four(rule, knobs, first_index + i);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      const Real value = updated_param<Real>(rule, knobs, static_cast<Real>(p.value[k]), static_cast<Real>(g.value[k]),
                                             m.value[k], v.value[k]);
      store(&updated.value[k], value, bits.value[k] & 0xFFFFu);
    }
    if (has_m) store_four(state + i, m, whole, count);
    if (has_v) store_four(state + numel + i, v, whole, count);
    store_four(param + i, updated, whole, count);
  }
}

template <typename Param, typename Grad, typename Real>
void run(const Update& u) {
  const int64_t groups = (u.numel + kGroup - 1) / kGroup, blocks = (groups + kThreads - 1) / kThreads;
  // The second state begins `numel` elements behind the first.
  const bool packed = aligned(u.param) && aligned(u.grad) && aligned(u.state) &&
                      (u.rule.kind != OptimizerKind::adamw || u.numel * static_cast<int64_t>(sizeof(Real)) % 16 == 0);
  update_kernel<Param, Grad, Real><<<static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64), kThreads, 0,
                                     static_cast<cudaStream_t>(u.stream)>>>(
      static_cast<Param*>(u.param), static_cast<const Grad*>(u.grad), static_cast<Real*>(u.state), u.numel, packed,
      u.knobs, u.rule, u.first_index);
  check_launch("update");
}

template <typename Grad>
void run_for_grad(const Update& u) {
  switch (u.param_element) {
    case Element::fp32:
      return run<float, Grad, float>(u);
    case Element::fp64:
      return run<double, Grad, double>(u);
    default:
      return run<__nv_bfloat16, Grad, float>(u);
  }
}

}  // namespace

void update(const Update& u) {
  if (u.numel == 0) return;
  switch (u.grad_element) {
    case Element::fp32:
      return run_for_grad<float>(u);
    case Element::fp64:
      return run_for_grad<double>(u);
    case Element::bf16:
      return run_for_grad<__nv_bfloat16>(u);
    case Element::fp16:
      return run_for_grad<__half>(u);
  }
}

}  // namespace veil::launch
