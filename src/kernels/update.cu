#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"
#include "kernels/vectorized_update.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;
// elements a thread takes at once: two fours, and one draw for their rounding
constexpr int kAtOnce = 8;

// `packed`: all addresses allow fours. The arithmetic is one piece of code for whole groups and for
// what is left, so that both round alike.
template <typename Param, typename Grad, typename State, typename Real>
__global__ void __launch_bounds__(kThreads)
    update_kernel(Param* param, const Grad* grad, State* state, int64_t numel, bool packed,
                  const UpdateKnobs* knobs_at, UpdateRule rule, int64_t first_index) {
  const UpdateKnobs knobs = *knobs_at;
  const UpdateFactors<Real> factors = update_factors<Real>(rule, knobs);
  const bool has_m = rule.kind != OptimizerKind::sgd, has_v = rule.kind == OptimizerKind::adamw;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kAtOnce;
  for (int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kAtOnce;
       begin < numel; begin += stride) {
    const int64_t index = first_index + begin;
    Bits<kAtOnce> bits = {}, m_bits = {}, v_bits = {};
    if constexpr (sizeof(State) == 2) {
      if (index % kRoundingGroup == 0) {
        bits = whole_rounding_bits<kAtOnce>(rule, knobs, index);
        m_bits = turned(bits, Rounded::first_moment);
        v_bits = turned(bits, Rounded::second_moment);
      } else {
        bits = single_rounding_bits<kAtOnce>(rule, knobs, index, Rounded::param);
        m_bits = single_rounding_bits<kAtOnce>(rule, knobs, index, Rounded::first_moment);
        v_bits = single_rounding_bits<kAtOnce>(rule, knobs, index, Rounded::second_moment);
      }
    } else if constexpr (sizeof(Param) == 2) {
      bits = rounding_bits_of<kAtOnce>(rule, knobs, index);
    }
    Four<Param> p[2];
    Four<Grad> g[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t i = begin + half * kFour, left = numel - i;
      const int count = left < 0 ? 0 : left < kFour ? static_cast<int>(left) : kFour;
      p[half] = load_four(param + i, packed && count == kFour, count);
      g[half] = load_four(grad + i, packed && count == kFour, count);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t i = begin + half * kFour, left = numel - i;
      const int count = left < 0 ? 0 : left < kFour ? static_cast<int>(left) : kFour;
      const bool whole = packed && count == kFour;
      Four<State> m = {}, v = {};
      if (has_m) m = load_four(state + i, whole, count);
      if (has_v) v = load_four(state + numel + i, whole, count);
      Four<Param> updated;
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        const int at = half * kFour + k;
        Real m_value = static_cast<Real>(m.value[k]), v_value = static_cast<Real>(v.value[k]);
        const Real value =
            updated_param<Real>(factors, static_cast<Real>(p[half].value[k]),
                                static_cast<Real>(g[half].value[k]), m_value, v_value);
        store(&updated.value[k], value, bits.value[at]);
        store(&m.value[k], m_value, m_bits.value[at]);
        store(&v.value[k], v_value, v_bits.value[at]);
      }
      if (has_m) store_four(state + i, m, whole, count);
      if (has_v) store_four(state + numel + i, v, whole, count);
      store_four(param + i, updated, whole, count);
    }
  }
}

template <typename Param, typename Grad, typename State, typename Real>
void run(const Update& u) {
  const int64_t groups = (u.numel + kAtOnce - 1) / kAtOnce,
                blocks = (groups + kThreads - 1) / kThreads;
  // The second state begins `numel` elements behind the first.
  const bool packed = aligned(u.param) && aligned(u.grad) && aligned(u.state) &&
                      (u.rule.kind != OptimizerKind::adamw ||
                       u.numel * static_cast<int64_t>(sizeof(State)) % 16 == 0);
  update_kernel<Param, Grad, State, Real>
      <<<static_cast<unsigned>(blocks < 132 * 32 ? blocks : 132 * 32), kThreads, 0,
         static_cast<cudaStream_t>(u.stream)>>>(
          static_cast<Param*>(u.param), static_cast<const Grad*>(u.grad),
          static_cast<State*>(u.state), u.numel, packed, u.knobs, u.rule, u.first_index);
  check_launch("update");
}

template <typename Grad>
void run_for_grad(const Update& u) {
  const bool narrow = u.state_element == Element::bf16;
  switch (u.param_element) {
    case Element::fp32:
      return narrow ? run<float, Grad, __nv_bfloat16, float>(u) : run<float, Grad, float, float>(u);
    case Element::fp64:
      return run<double, Grad, double, double>(u);
    default:
      return narrow ? run<__nv_bfloat16, Grad, __nv_bfloat16, float>(u)
                    : run<__nv_bfloat16, Grad, float, float>(u);
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
