// An optimizer's step on a CPU: the reference for the kernels that update parameters.
#pragma once

#include "kernels/update_rule.h"

namespace veil {

// `Real`: the arithmetic.
template <typename Real>
class UpdateReference {
 public:
  UpdateReference(const UpdateRule& rule, const UpdateKnobs& knobs)
      : rule_(rule), knobs_(knobs), factors_(update_factors<Real>(rule, knobs)) {}

  // Of `count` elements, the first of which has the model-wide `index`. Param and State: Real, or
  // bf16 if that is float. m and v are read only if the rule has them.
  template <typename Param, typename State>
  void update(int64_t index, int64_t count, Param* param, const Real* grad, State* m,
              State* v) const;

 private:
  template <OptimizerKind kKind, typename Param, typename State>
  void update_by(int64_t index, int64_t count, Param* param, const Real* grad, State* m,
                 State* v) const;

  const UpdateRule& rule_;
  const UpdateKnobs& knobs_;
  UpdateFactors<Real> factors_;
};

}  // namespace veil
