// Sixteen neighbours updated at once in fp32 arithmetic, with noise or without. For .cu files.
#pragma once

#include "kernels/vectorized_access.cuh"
#include "kernels/vectorized_update.cuh"

namespace veil::launch {

inline constexpr int kUpdateGroup = 16;

// At most so many as keep every processor busy; each then takes several turns.
inline unsigned update_blocks(int64_t threads, int block) {
  constexpr int64_t kMost = 132 * 32;
  const int64_t blocks = (threads + block - 1) / block;
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

// What a thread updates at once, by accesses of 16 bytes; words of two elements if those have two
// bytes.
template <typename T>
struct Group {
  static constexpr int kWords = kUpdateGroup * sizeof(T) / 4;
  uint32_t word[kWords];
  __device__ __forceinline__ float at(int k) const {
    if constexpr (sizeof(T) == 2) {
      return k % 2 ? high_of(word[k / 2], T()) : low_of(word[k / 2], T());
    } else {
      return __uint_as_float(word[k]);
    }
  }
};
// kApart: the distance in elements between a thread's accesses of 16 bytes. They are adjacent unless
// the group is spread: then the accesses of a warp's threads are.
inline constexpr int kSpread = 32 * kWideOf<float>;
template <int kApart, typename T>
__device__ __forceinline__ Group<T> load_group(const T* at) {
  Group<T> group;
#pragma unroll
  for (int q = 0; q < Group<T>::kWords / 4; ++q) {
    const uint4 four = *reinterpret_cast<const uint4*>(at + q * kApart);
    group.word[4 * q] = four.x;
    group.word[4 * q + 1] = four.y;
    group.word[4 * q + 2] = four.z;
    group.word[4 * q + 3] = four.w;
  }
  return group;
}
template <typename T>
__device__ __forceinline__ Group<T> load_group(const T* at) {
  return load_group<kWideOf<T>>(at);
}
template <int kApart>
__device__ __forceinline__ void store_group(float* to, const float (&value)[kUpdateGroup],
                                            const Bits<kUpdateGroup>&) {
#pragma unroll
  for (int q = 0; q < kUpdateGroup / kFour; ++q)
    *reinterpret_cast<float4*>(to + q * kApart) =
        make_float4(value[4 * q], value[4 * q + 1], value[4 * q + 2], value[4 * q + 3]);
}
// Rounded stochastically. Where a value is not finite or near the largest one, element by element.
template <int kApart>
__device__ __forceinline__ void store_group(__nv_bfloat16* to, const float (&value)[kUpdateGroup],
                                            const Bits<kUpdateGroup>& bits) {
  float sizes = 0;  // their sum, or not a number
#pragma unroll
  for (int k = 0; k < kUpdateGroup; ++k) sizes += fabsf(value[k]);
  uint32_t word[kUpdateGroup / 2];
#pragma unroll
  for (int w = 0; w < kUpdateGroup / 2; ++w) {
    const uint32_t low = __float_as_uint(value[2 * w]), high = __float_as_uint(value[2 * w + 1]);
    word[w] = __byte_perm(low + bits.value[2 * w], high + bits.value[2 * w + 1], 0x7632);
  }
  if (!(sizes < 0x1p127f)) {
#pragma unroll
    for (int w = 0; w < kUpdateGroup / 2; ++w) {
      const uint32_t low =
          round_to_bf16_stochastically(__float_as_uint(value[2 * w]), bits.value[2 * w]);
      const uint32_t high =
          round_to_bf16_stochastically(__float_as_uint(value[2 * w + 1]), bits.value[2 * w + 1]);
      word[w] = low | high << 16;
    }
  }
#pragma unroll
  for (int q = 0; q < 2; ++q)
    *reinterpret_cast<uint4*>(to + q * kApart) =
        make_uint4(word[4 * q], word[4 * q + 1], word[4 * q + 2], word[4 * q + 3]);
}

// updated_param in fp32, with the divisions by what all elements share made once and the other by
// the device's quick one. Fused multiply-adds are written out, so that an element gets the same bits
// from every kernel that updates it. What decays is subtracted as such: 1 - rate * decay, rounded,
// would be off by the same part for all elements at every step.
struct QuickUpdate {
  UpdateFactors<float> f;
  float decay, rate, inverse1, inverse2;

  __device__ __forceinline__ QuickUpdate(const UpdateRule& rule, const UpdateKnobs& knobs)
      : f(update_factors<float>(rule, knobs)),
        decay(f.learning_rate * f.weight_decay),
        rate(f.learning_rate * f.scale),
        inverse1(1 / f.correction1),
        inverse2(1 / f.correction2) {}

  __device__ __forceinline__ float updated(OptimizerKind kind, float p, float grad, float& m,
                                           float& v) const {
    return decay == 0 ? updated_with<false>(kind, p, grad, m, v)
                      : updated_with<true>(kind, p, grad, m, v);
  }
  // kDecays: whether `decay` is other than 0. Plain SGD is one operation without.
  template <bool kDecays>
  __device__ __forceinline__ float updated_with(OptimizerKind kind, float p, float grad, float& m,
                                                float& v) const {
    if (kind == OptimizerKind::sgd)
      return kDecays ? p - fmaf(rate, grad, decay * p) : fmaf(-rate, grad, p);
    if (kind == OptimizerKind::sgd_momentum) {
      m = fmaf(f.momentum, m, fmaf(f.scale, grad, f.weight_decay * p));
      return fmaf(-f.learning_rate, m, p);
    }
    const float mean = grad * f.scale;
    m = fmaf(f.beta1, m, f.rest1 * mean);
    v = fmaf(f.beta2, v, f.rest2 * mean * mean);
    const float spread = sqrtf(v * inverse2) + f.epsilon;
    return p - fmaf(decay, p, __fdividef(f.learning_rate * (m * inverse1), spread));
  }
};

// What an optimizer does to a group.
template <typename Param, typename State, OptimizerKind kKind>
struct GroupRule {
  const UpdateRule& rule;
  UpdateKnobs knobs;
  QuickUpdate quick;

  __device__ __forceinline__ GroupRule(const UpdateRule& of, const UpdateKnobs& at)
      : rule(of), knobs(at), quick(of, at) {}

  // `before` is the group at `param`, `sum` its gradient, `index` its first element's for rounding:
  // a multiple of 8. `kIsSpread`: the group is spread, and nothing is rounded.
  template <bool kIsSpread = false>
  __device__ __forceinline__ void update(Param* param, State* m_at, State* v_at, int64_t index,
                                         const Group<Param>& before,
                                         const float (&sum)[kUpdateGroup]) const {
    constexpr int kParams = kIsSpread ? kSpread : kWideOf<Param>,
                  kStates = kIsSpread ? kSpread : kWideOf<State>;
    constexpr bool kHasM = kKind != OptimizerKind::sgd, kHasV = kKind == OptimizerKind::adamw;
    Bits<kUpdateGroup> bits = {};
    const auto draw_bits = [&] { bits = whole_rounding_bits<kUpdateGroup>(rule, knobs, index); };
    if constexpr (sizeof(State) == 2) draw_bits();
    Group<State> m_before = {}, v_before = {};
    if constexpr (kHasM) m_before = load_group<kStates>(m_at);
    if constexpr (kHasV) v_before = load_group<kStates>(v_at);
    float value[kUpdateGroup], m[kUpdateGroup], v[kUpdateGroup];
    const auto update_all = [&](auto decays) {
#pragma unroll
      for (int k = 0; k < kUpdateGroup; ++k) {
        m[k] = m_before.at(k);
        v[k] = v_before.at(k);
        value[k] =
            quick.template updated_with<decays.value>(kKind, before.at(k), sum[k], m[k], v[k]);
      }
    };
    if (kKind == OptimizerKind::sgd && quick.decay == 0) {
      update_all(std::false_type());
    } else {
      update_all(std::true_type());
    }
    if constexpr (kHasV) store_group<kStates>(v_at, v, turned(bits, Rounded::second_moment));
    if constexpr (kHasM) store_group<kStates>(m_at, m, turned(bits, Rounded::first_moment));
    if constexpr (sizeof(Param) == 2 && sizeof(State) != 2) draw_bits();
    store_group<kParams>(param, value, bits);
  }
};

}  // namespace veil::launch
