#include "kernels/group_update.cuh"
#include "kernels/launch.h"

namespace veil::launch {
namespace {

constexpr int kThreads = 256, kGroupThreads = 128;

// Where nothing has two bytes nothing is rounded, and a group may be spread over its warp's share.
template <typename Param, typename Grad, typename State>
inline constexpr bool kIsSpread = sizeof(Param) == 4 && sizeof(Grad) == 4 && sizeof(State) == 4;

// Whole groups, or those of whole warps if they are spread, at addresses that allow them.
template <typename Param, typename Grad, typename State, OptimizerKind kKind>
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ Update u, int64_t groups) {
  constexpr bool kSpreads = kIsSpread<Param, Grad, State>;
  constexpr int kParams = kSpreads ? kSpread : kWideOf<Param>,
                kGrads = kSpreads ? kSpread : kWideOf<Grad>;
  const GroupRule<Param, State, kKind> rule(u.rule, *u.knobs);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kGroupThreads;
  for (int64_t group = static_cast<int64_t>(blockIdx.x) * kGroupThreads + threadIdx.x;
       group < groups; group += stride) {
    const int64_t lane = threadIdx.x % 32;
    const int64_t begin =
        kSpreads ? (group - lane) * kUpdateGroup + lane * kFour : group * kUpdateGroup;
    Param* const param = static_cast<Param*>(u.param) + begin;
    State* const m = static_cast<State*>(u.state) + begin;
    const Group<Param> before = load_group<kParams>(param);
    const Group<Grad> grad = load_group<kGrads>(static_cast<const Grad*>(u.grad) + begin);
    float sum[kUpdateGroup];
#pragma unroll
    for (int k = 0; k < kUpdateGroup; ++k) sum[k] = grad.at(k);
    rule.template update<kSpreads>(param, m, m + u.numel, u.first_index + begin, before, sum);
  }
}

// The elements from `first` on, one by one: what is left of a range, and types and addresses that
// the other kernel does not take.
template <typename Param, typename Grad, typename State, typename Real>
__global__ void __launch_bounds__(kThreads)
    element_kernel(const __grid_constant__ Update u, int64_t first) {
  const UpdateKnobs knobs = *u.knobs;
  const UpdateFactors<Real> factors = update_factors<Real>(u.rule, knobs);
  const QuickUpdate quick(u.rule, knobs);
  const bool has_m = u.rule.kind != OptimizerKind::sgd, has_v = u.rule.kind == OptimizerKind::adamw;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < u.numel;
       i += stride) {
    Param* const param = static_cast<Param*>(u.param) + i;
    State *const m_at = static_cast<State*>(u.state) + i, *const v_at = m_at + u.numel;
    const Real before = static_cast<Real>(*param),
               grad = static_cast<Real>(static_cast<const Grad*>(u.grad)[i]);
    Real m = has_m ? static_cast<Real>(*m_at) : Real(0),
         v = has_v ? static_cast<Real>(*v_at) : Real(0), value;
    if constexpr (sizeof(Real) == 8) {
      value = updated_param<Real>(factors, before, grad, m, v);
    } else {
      value = quick.updated(u.rule.kind, before, grad, m, v);
    }
    Philox4 words = {};
    if constexpr (sizeof(Param) == 2 || sizeof(State) == 2)
      words = rounding_words(u.rule, knobs, u.first_index + i);
    const auto bits = [&](Rounded what) { return rounding_bits(words, u.first_index + i, what); };
    store(param, value, bits(Rounded::param));
    if (has_m) store(m_at, m, bits(Rounded::first_moment));
    if (has_v) store(v_at, v, bits(Rounded::second_moment));
  }
}

// Returns how many elements it updates: those of whole groups.
template <typename Param, typename Grad, typename State, OptimizerKind kKind>
int64_t run_groups(const Update& u) {
  constexpr int64_t kWhole = kIsSpread<Param, Grad, State> ? 32 : 1;
  const int64_t groups = u.numel / (kUpdateGroup * kWhole) * kWhole;
  // The second state begins `numel` elements behind the first.
  const bool fits =
      aligned(u.param) && aligned(u.grad) && aligned(u.state) &&
      u.first_index % kRoundingGroup == 0 &&
      (kKind != OptimizerKind::adamw || u.numel * static_cast<int64_t>(sizeof(State)) % 16 == 0);
  if (!fits || groups == 0) return 0;
  group_kernel<Param, Grad, State, kKind><<<update_blocks(groups, kGroupThreads), kGroupThreads, 0,
                                            static_cast<cudaStream_t>(u.stream)>>>(u, groups);
  check_launch("update");
  return groups * kUpdateGroup;
}
template <typename Param, typename Grad, typename State>
int64_t run_groups(const Update& u) {
  switch (u.rule.kind) {
    case OptimizerKind::sgd:  // has no state
      return run_groups<Param, Grad, float, OptimizerKind::sgd>(u);
    case OptimizerKind::sgd_momentum:
      return run_groups<Param, Grad, State, OptimizerKind::sgd_momentum>(u);
    case OptimizerKind::adamw:
      return run_groups<Param, Grad, State, OptimizerKind::adamw>(u);
  }
  return 0;
}

template <typename Param, typename Grad, typename State, typename Real>
void run(const Update& u) {
  int64_t done = 0;
  if constexpr (sizeof(Real) == 4 && sizeof(Grad) <= 4) done = run_groups<Param, Grad, State>(u);
  if (done == u.numel) return;
  element_kernel<Param, Grad, State, Real><<<update_blocks(u.numel - done, kThreads), kThreads, 0,
                                             static_cast<cudaStream_t>(u.stream)>>>(u, done);
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
