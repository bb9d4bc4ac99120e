// An optimizer's step of one element on a CPU: the reference for the kernels that update
// parameters.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstring>
#include <type_traits>

#include "kernels/update_rule.h"

namespace veil {

// `Real`: the arithmetic. `index` is model-wide.
template <typename Real>
class UpdateReference {
 public:
  UpdateReference(const UpdateRule& rule, const UpdateKnobs& knobs)
      : rule_(rule), knobs_(knobs), factors_(update_factors<Real>(rule, knobs)) {}

  // m and v are null if the rule has none.
  template <typename Param, typename State>
  void update(int64_t index, Param& param, Real grad, State* m, State* v) const {
    Real m_value = m ? static_cast<Real>(*m) : Real{0},
         v_value = v ? static_cast<Real>(*v) : Real{0};
    const Real value =
        updated_param<Real>(factors_, static_cast<Real>(param), grad, m_value, v_value);
    store(param, value, index, Rounded::param);
    if (m) store(*m, m_value, index, Rounded::first_moment);
    if (v) store(*v, v_value, index, Rounded::second_moment);
  }

 private:
  template <typename To>
  void store(To& to, Real value, int64_t index, Rounded what) const {
    if constexpr (std::is_same_v<To, c10::BFloat16>) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      to = c10::BFloat16(
          round_to_bf16_stochastically(bits, rounding_bits(rule_, knobs_, index, what)),
          c10::BFloat16::from_bits());
    } else {
      to = value;
    }
  }

  const UpdateRule& rule_;
  const UpdateKnobs& knobs_;
  UpdateFactors<Real> factors_;
};

}  // namespace veil
