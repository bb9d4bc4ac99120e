#include "kernels/update_reference.h"

#include <c10/util/BFloat16.h>

#include <cstring>
#include <type_traits>

namespace veil {
namespace {

template <typename To>
constexpr bool kIsBf16 = std::is_same_v<To, c10::BFloat16>;

// words: rounding_words of the element, which bf16 alone needs.
template <typename To, typename Real>
void store(To& to, Real value, const Philox4& words, int64_t index, Rounded what) {
  if constexpr (kIsBf16<To>) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    to = c10::BFloat16(round_to_bf16_stochastically(bits, rounding_bits(words, index, what)),
                       c10::BFloat16::from_bits());
  } else {
    to = value;
  }
}

}  // namespace

// With a constant kind the loop has no branch, and becomes vector instructions if nothing is bf16.
template <typename Real>
template <OptimizerKind kKind, typename Param, typename State>
void UpdateReference<Real>::update_by(int64_t index, int64_t count, Param* param, const Real* grad,
                                      State* m, State* v) const {
  constexpr bool kHasM = kKind != OptimizerKind::sgd, kHasV = kKind == OptimizerKind::adamw;
  constexpr bool kRounds = kIsBf16<Param> || (kHasM && kIsBf16<State>);
  UpdateFactors<Real> factors = factors_;
  factors.kind = kKind;
  Philox4 words = {};
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kRounds) {
      if (i == 0 || (index + i) % kRoundingGroup == 0)
        words = rounding_words(rule_, knobs_, index + i);
    }
    Real m_value = 0, v_value = 0;
    if constexpr (kHasM) m_value = static_cast<Real>(m[i]);
    if constexpr (kHasV) v_value = static_cast<Real>(v[i]);
    const Real value =
        updated_param<Real>(factors, static_cast<Real>(param[i]), grad[i], m_value, v_value);
    store(param[i], value, words, index + i, Rounded::param);
    if constexpr (kHasM) store(m[i], m_value, words, index + i, Rounded::first_moment);
    if constexpr (kHasV) store(v[i], v_value, words, index + i, Rounded::second_moment);
  }
}

template <typename Real>
template <typename Param, typename State>
void UpdateReference<Real>::update(int64_t index, int64_t count, Param* param, const Real* grad,
                                   State* m, State* v) const {
  switch (rule_.kind) {
    case OptimizerKind::sgd:
      return update_by<OptimizerKind::sgd>(index, count, param, grad, m, v);
    case OptimizerKind::sgd_momentum:
      return update_by<OptimizerKind::sgd_momentum>(index, count, param, grad, m, v);
    case OptimizerKind::adamw:
      return update_by<OptimizerKind::adamw>(index, count, param, grad, m, v);
  }
}

template void UpdateReference<double>::update(int64_t, int64_t, double*, const double*, double*,
                                              double*) const;
template void UpdateReference<float>::update(int64_t, int64_t, float*, const float*, float*,
                                             float*) const;
template void UpdateReference<float>::update(int64_t, int64_t, float*, const float*, c10::BFloat16*,
                                             c10::BFloat16*) const;
template void UpdateReference<float>::update(int64_t, int64_t, c10::BFloat16*, const float*, float*,
                                             float*) const;
template void UpdateReference<float>::update(int64_t, int64_t, c10::BFloat16*, const float*,
                                             c10::BFloat16*, c10::BFloat16*) const;

}  // namespace veil
