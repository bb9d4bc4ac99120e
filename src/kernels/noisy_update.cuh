// The noisy update's kernels, one .cu file per generator because they take long to compile.
#pragma once

#include <type_traits>

#include "kernels/group_update.cuh"
#include "kernels/launch.h"
#include "kernels/noise_group.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace noisy {

constexpr int kThreads = 128;
constexpr int kFours = kNoiseGroup / kFour;
static_assert(kNoiseGroup == kUpdateGroup);

// Elements [at, at + 4) of a range of `numel` that begins at `from`; those outside it are neither
// read nor written. `whole`: all inside, and one access is allowed.
template <typename T>
__device__ __forceinline__ Four<T> load_inside(const T* from, int64_t at, int64_t numel,
                                               bool whole) {
  if (whole) return *reinterpret_cast<const Four<T>*>(from + at);
  Four<T> four = {};
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (at + k >= 0 && at + k < numel) four.value[k] = from[at + k];
  }
  return four;
}
template <typename T>
__device__ __forceinline__ void store_inside(T* to, int64_t at, int64_t numel, const Four<T>& four,
                                             bool whole) {
  if (whole) {
    *reinterpret_cast<Four<T>*>(to + at) = four;
    return;
  }
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (at + k >= 0 && at + k < numel) to[at + k] = four.value[k];
  }
}

// Any range, any type: a thread makes one aligned group of noise and updates what of it falls into
// the range. It has the bits of the quick kernel below, which works on the groups beside it.
// `ends_only`: whole groups are somebody else's.
template <typename Param, typename Grad, typename State, typename Real, NoiseGenerator kGenerator>
__global__ void __launch_bounds__(kThreads) any_kernel(NoisyUpdate u, bool packed, bool ends_only) {
  const UpdateKnobs knobs = *u.knobs;
  const NoiseKnobs noise = *u.noise_knobs;
  const Real deviation = static_cast<Real>(noise.deviation);
  const UpdateFactors<Real> factors = update_factors<Real>(u.rule, knobs);
  const QuickUpdate quick(u.rule, knobs);
  const auto* grad = static_cast<const Grad*>(u.grad);
  auto* param = static_cast<Param*>(u.param);
  auto *m_at = static_cast<State*>(u.m), *v_at = static_cast<State*>(u.v);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = u.first_element / kNoiseGroup,
                last = (u.first_element + u.numel - 1) / kNoiseGroup;
  int64_t group = first + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (ends_only) {  // two threads
    if (threadIdx.x > 1 || (threadIdx.x == 1 && first == last)) return;
    group = threadIdx.x == 0 ? first : last;
  }
  for (; group <= last; group += stride) {
    const int64_t begin = group * kNoiseGroup - u.first_element;
    const bool inside = begin >= 0 && begin + kNoiseGroup <= u.numel, whole = packed && inside;
    if (ends_only && inside) return;
    NoiseGroup<Real> noise_here = {};
    if (deviation != 0)
      noise_here = noise_group_on_device<Real, kGenerator>(
          u.keys, static_cast<uint64_t>(noise.step), u.parameter, group, deviation);
    Real(&sum)[kNoiseGroup] = noise_here.value;
    if (u.samples == 0) {
#pragma unroll
      for (int q = 0; q < kFours; ++q) {
        const Four<Grad> g = load_inside(grad, begin + q * kFour, u.numel, whole);
#pragma unroll
        for (int k = 0; k < kFour; ++k) sum[q * kFour + k] += static_cast<Real>(g.value[k]);
      }
    }
    for (int64_t s = 0; s < u.samples; ++s) {
      const Real factor = static_cast<Real>(u.coefficients[s]);
      if (factor == 0) continue;
#pragma unroll
      for (int q = 0; q < kFours; ++q) {
        const Four<Grad> g = load_inside(grad + s * u.stride, begin + q * kFour, u.numel, whole);
#pragma unroll
        for (int k = 0; k < kFour; ++k)
          sum[q * kFour + k] = fma(factor, static_cast<Real>(g.value[k]), sum[q * kFour + k]);
      }
    }
    if constexpr (kGenerator == NoiseGenerator::hardened) {
      if (deviation != 0) {
        const Real anchor = noise_anchor<Real>(noise.deviation);
#pragma unroll
        for (int k = 0; k < kNoiseGroup; ++k) sum[k] = noise_snapped(sum[k], anchor);
      }
    }
    Bits<kNoiseGroup> bits = {};
    if constexpr (sizeof(Param) == 2)
      bits = rounding_bits_of<kNoiseGroup>(u.rule, knobs, u.first_index + begin);
    Bits<kNoiseGroup> m_bits = {}, v_bits = {};
    if constexpr (sizeof(State) == 2) {
      m_bits = single_rounding_bits<kNoiseGroup>(u.rule, knobs, u.first_index + begin,
                                                 Rounded::first_moment);
      v_bits = single_rounding_bits<kNoiseGroup>(u.rule, knobs, u.first_index + begin,
                                                 Rounded::second_moment);
    }
#pragma unroll
    for (int q = 0; q < kFours; ++q) {
      const int64_t at = begin + q * kFour;
      const Four<Param> p = load_inside(param, at, u.numel, whole);
      Four<State> m = {}, v = {};
      if (m_at) m = load_inside(m_at, at, u.numel, whole);
      if (v_at) v = load_inside(v_at, at, u.numel, whole);
      Four<Param> updated;
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        const int place = q * kFour + k;
        Real m_value = static_cast<Real>(m.value[k]), v_value = static_cast<Real>(v.value[k]),
             value;
        const Real before = static_cast<Real>(p.value[k]);
        if constexpr (sizeof(Real) == 8) {
          value = updated_param<Real>(factors, before, sum[place], m_value, v_value);
        } else {
          value = quick.updated(u.rule.kind, before, sum[place], m_value, v_value);
        }
        store(&updated.value[k], value, bits.value[place]);
        store(&m.value[k], m_value, m_bits.value[place]);
        store(&v.value[k], v_value, v_bits.value[place]);
      }
      if (m_at) store_inside(m_at, at, u.numel, m, whole);
      if (v_at) store_inside(v_at, at, u.numel, v, whole);
      store_inside(param, at, u.numel, updated, whole);
    }
    if (ends_only) return;
  }
}

// Nothing of a sample that is left out, whatever its numbers are. All threads agree on it.
template <typename Grad>
__device__ __forceinline__ void add_sample(float (&sum)[kNoiseGroup], const Group<Grad>& grad,
                                           float factor) {
  if (factor == 0) return;
#pragma unroll
  for (int k = 0; k < kNoiseGroup; ++k) sum[k] = fmaf(factor, grad.at(k), sum[k]);
}

// The ranges of one launch. What they share is in the first update.
struct Range {
  void *param, *m, *v;
  const void* grad;
  int64_t first_index, first_element;
  int64_t first_group, groups;
  uint32_t parameter;
  uint32_t end_block;  // of the blocks that work on it: all threads of a block have one range
};
constexpr int kMostRanges = 16;
struct Ranges {
  NoisyUpdate shared;
  int64_t a_block;  // groups
  int count;
  Range range[kMostRanges];
};

// Whole groups in fp32 arithmetic; memory is requested before the normals are made.
template <typename Param, typename Grad, typename State, NoiseGenerator kGenerator,
          OptimizerKind kKind>
struct GroupUpdate {
  const NoisyUpdate& u;
  const float* factor;  // of each sample
  GroupRule<Param, State, kKind> rule;
  NoiseKnobs noise;
  float anchor;  // of hardened noise's lattice

  __device__ __forceinline__ GroupUpdate(const NoisyUpdate& update, const float* factors)
      : u(update),
        factor(factors),
        rule(u.rule, *u.knobs),
        noise(*u.noise_knobs),
        anchor(noise_anchor<float>(noise.deviation)) {}

  // False if further words are needed and not `kFurther`: then nothing is written.
  template <bool kFurther>
  __device__ __forceinline__ bool run(const Range& of, int64_t group) const {
    const auto deviation = static_cast<float>(noise.deviation);
    const auto step = static_cast<uint64_t>(noise.step);
    const int64_t begin = group * kNoiseGroup - of.first_element;
    // Samples that are requested before the normals are made: what has four bytes is mostly a sum,
    // and takes more registers.
    constexpr int kAhead = sizeof(Grad) == 2 ? 2 : 1;
    const auto* grad = static_cast<const Grad*>(of.grad);
    Param* const param = static_cast<Param*>(of.param) + begin;
    const Group<Param> before = load_group(param);
    const Group<Grad> first = load_group(grad + begin);
    Group<Grad> second = {};
    if constexpr (kAhead > 1) second = load_group(grad + begin + (u.samples > 1 ? u.stride : 0));
    // A deviation of 0 makes zeros of the normals: a branch around them costs as much as they do.
    const auto index = static_cast<uint64_t>(group);
    const ChaChaBlock words = noise_words(kGenerator, u.keys.key, step, of.parameter, index);
    constexpr bool kHardened = kGenerator == NoiseGenerator::hardened;
    const float weight = kHardened ? static_cast<float>(kNoiseFirstWeight) * deviation : deviation;
    NoiseGroup<float> normals;
    if constexpr (kFurther) {
      const ChaChaBlock further =
          noise_words(kGenerator, u.keys.key, step, of.parameter, index, /*further=*/true);
      normals = noise_normals(words, &further, weight);
    } else {
      if (noise_needs_further_words(words)) return false;
      normals = noise_normals(words, nullptr, weight);
    }
    float(&sum)[kNoiseGroup] = normals.value;
    if constexpr (kHardened) {
      const NoiseGroup<float> second =
          noise_second_draw<float>(u.keys.second, step, of.parameter, index);
      const float blur = static_cast<float>(kNoiseSecondWeight) * deviation;
#pragma unroll
      for (int k = 0; k < kNoiseGroup; ++k) sum[k] = fmaf(blur, second.value[k], sum[k]);
    }
    if (u.samples == 0) {
#pragma unroll
      for (int k = 0; k < kNoiseGroup; ++k) sum[k] += first.at(k);
    } else {
      add_sample(sum, first, factor[0]);
      if (kAhead > 1 && u.samples > 1) add_sample(sum, second, factor[1]);
      constexpr int kAtOnce = 8 / sizeof(Grad);  // on their way together
#pragma unroll 1
      for (int64_t s = kAhead; s < u.samples; s += kAtOnce) {
        Group<Grad> more[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          more[k] = load_group(grad + (s + k < u.samples ? s + k : s) * u.stride + begin);
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          add_sample(sum, more[k], s + k < u.samples ? factor[s + k] : 0.0f);
      }
    }
    if constexpr (kGenerator == NoiseGenerator::hardened) {
      if (deviation != 0) {
#pragma unroll
        for (int k = 0; k < kNoiseGroup; ++k) sum[k] = noise_snapped(sum[k], anchor);
      }
    }
    rule.update(param, static_cast<State*>(of.m) + begin, static_cast<State*>(of.v) + begin,
                of.first_index + begin, before, sum);
    return true;
  }
};

// Out of line: one group in 4096 needs it, and it must not cost the others registers.
template <typename Param, typename Grad, typename State, NoiseGenerator kGenerator,
          OptimizerKind kKind>
__device__ __noinline__ void update_with_further_words(const NoisyUpdate& u, const float* factor,
                                                       Range of, int64_t group) {
  GroupUpdate<Param, Grad, State, kGenerator, kKind>(u, factor).template run<true>(of, group);
}

// Blocks that a processor holds at once: moments need registers, of which more blocks leave fewer.
constexpr int held_blocks(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? 4 : 5;
}

template <typename Param, typename Grad, typename State, NoiseGenerator kGenerator,
          OptimizerKind kKind>
__global__ void __launch_bounds__(kThreads, held_blocks(kKind))
    whole_kernel(const __grid_constant__ Ranges r) {
  extern __shared__ float factor[];
  for (int64_t s = threadIdx.x; s < r.shared.samples; s += kThreads)
    factor[s] = static_cast<float>(r.shared.coefficients[s]);
  __syncthreads();
  const GroupUpdate<Param, Grad, State, kGenerator, kKind> update(r.shared, factor);
  int range = 0;
  while (blockIdx.x >= r.range[range].end_block) ++range;
  const Range of = r.range[range];
  const int64_t blocks_before = range > 0 ? r.range[range - 1].end_block : 0,
                begin = (blockIdx.x - blocks_before) * r.a_block;
  const int64_t end = begin + r.a_block < of.groups ? begin + r.a_block : of.groups;
#pragma unroll 1
  for (int64_t g = begin + threadIdx.x; g < end; g += kThreads) {
    const int64_t group = of.first_group + g;
    if (!update.template run<false>(of, group))
      update_with_further_words<Param, Grad, State, kGenerator, kKind>(r.shared, factor, of, group);
  }
}

template <typename Param, typename Grad, typename State, typename Real, NoiseGenerator kGenerator>
void run_any(const NoisyUpdate& u, bool packed, bool ends_only) {
  const unsigned grid = ends_only ? 1 : update_blocks(u.numel / kNoiseGroup + 2, kThreads);
  any_kernel<Param, Grad, State, Real, kGenerator>
      <<<grid, kThreads, 0, static_cast<cudaStream_t>(u.stream)>>>(u, packed, ends_only);
  check_launch("noisy_update");
}

template <typename Param, typename Grad, typename State, NoiseGenerator kGenerator,
          OptimizerKind kKind>
void run_whole(Ranges& ranges) {
  int64_t groups = 0, blocks = 0;
  for (int i = 0; i < ranges.count; ++i) groups += ranges.range[i].groups;
  const int64_t even = int64_t{kThreads} * update_blocks(groups, kThreads);
  ranges.a_block = (groups + even - 1) / even * kThreads;
  for (int i = 0; i < ranges.count; ++i) {
    blocks += (ranges.range[i].groups + ranges.a_block - 1) / ranges.a_block;
    ranges.range[i].end_block = static_cast<uint32_t>(blocks);
  }
  const auto grid = static_cast<unsigned>(blocks);
  const size_t shared = static_cast<size_t>(ranges.shared.samples) * sizeof(float);
  whole_kernel<Param, Grad, State, kGenerator, kKind>
      <<<grid, kThreads, shared, static_cast<cudaStream_t>(ranges.shared.stream)>>>(ranges);
  check_launch("noisy_update");
}

// Whether the quick kernel exists for these types: what is rarely requested is left to the other
// one.
template <typename Param, typename Grad, typename State, NoiseGenerator kGenerator,
          OptimizerKind kKind>
constexpr bool is_quick() {
  if (sizeof(Param) == 8 || sizeof(Grad) == 8) return false;
  if (kGenerator == NoiseGenerator::hardened && std::is_same_v<Grad, __half>) return false;
  if (sizeof(State) == 4) return true;
  return kKind == OptimizerKind::adamw && !std::is_same_v<Grad, __half>;
}

// Whether each of its tensors begins where accesses of so many elements may.
template <typename Param, typename Grad, typename State>
bool allows(const NoisyUpdate& u, int64_t elements) {
  const auto fits = [&](const void* at, int64_t size) {
    const int64_t bytes = size * elements < 16 ? size * elements : 16;
    return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0;
  };
  return u.first_element % elements == 0 && u.stride % elements == 0 &&
         fits(u.param, sizeof(Param)) && fits(u.grad, sizeof(Grad)) && fits(u.m, sizeof(State)) &&
         fits(u.v, sizeof(State));
}

// Whole groups by the quick kernel if types and addresses allow it, the two ends and everything
// else by the other.
template <typename Param, typename Grad, typename State, typename Real, NoiseGenerator kGenerator,
          OptimizerKind kKind>
void run(const NoisyUpdates& updates) {
  constexpr bool kQuick = is_quick<Param, Grad, State, kGenerator, kKind>();
  Ranges ranges{updates.front(), 0, 0, {}};
  const auto flush = [&] {
    if constexpr (kQuick) {
      if (ranges.count > 0) run_whole<Param, Grad, State, kGenerator, kKind>(ranges);
    }
    ranges.count = 0;
  };
  for (const NoisyUpdate& u : updates) {
    const bool packed = allows<Param, Grad, State>(u, kFour);
    const bool grouped = allows<Param, Grad, State>(u, kRoundingGroup) &&
                         (u.first_index - u.first_element) % kRoundingGroup == 0;
    constexpr int64_t kMostShared = 8192;  // samples whose coefficients fit
    const int64_t first = (u.first_element + kNoiseGroup - 1) / kNoiseGroup,
                  end = (u.first_element + u.numel) / kNoiseGroup;
    if (!kQuick || !grouped || u.samples > kMostShared || end <= first) {
      run_any<Param, Grad, State, Real, kGenerator>(u, packed, /*ends_only=*/false);
      continue;
    }
    if (ranges.count == kMostRanges) flush();
    ranges.range[ranges.count++] = {u.param,         u.m,   u.v,         u.grad,      u.first_index,
                                    u.first_element, first, end - first, u.parameter, 0};
    if (first * kNoiseGroup != u.first_element || end * kNoiseGroup != u.first_element + u.numel)
      run_any<Param, Grad, State, Real, kGenerator>(u, packed, /*ends_only=*/true);
  }
  flush();
}

template <typename Param, typename Grad, typename State, typename Real, NoiseGenerator kGenerator>
void run_for_rule(const NoisyUpdates& u) {
  switch (u.front().rule.kind) {
    case OptimizerKind::sgd:  // has no state
      return run<Param, Grad, Real, Real, kGenerator, OptimizerKind::sgd>(u);
    case OptimizerKind::sgd_momentum:
      return run<Param, Grad, State, Real, kGenerator, OptimizerKind::sgd_momentum>(u);
    case OptimizerKind::adamw:
      return run<Param, Grad, State, Real, kGenerator, OptimizerKind::adamw>(u);
  }
}

template <NoiseGenerator kGenerator>
struct By {
  template <typename Grad>
  struct Run {
    static void run(const NoisyUpdates& u) {
      const bool narrow = u.front().state_element == Element::bf16;
      switch (u.front().param_element) {
        case Element::fp32:
          return narrow ? run_for_rule<float, Grad, __nv_bfloat16, float, kGenerator>(u)
                        : run_for_rule<float, Grad, float, float, kGenerator>(u);
        case Element::fp64:
          return run_for_rule<double, Grad, double, double, kGenerator>(u);
        default:
          return narrow ? run_for_rule<__nv_bfloat16, Grad, __nv_bfloat16, float, kGenerator>(u)
                        : run_for_rule<__nv_bfloat16, Grad, float, float, kGenerator>(u);
      }
    }
  };
};

}  // namespace noisy
}  // namespace veil::launch
