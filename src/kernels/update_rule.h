// What an optimizer does to one element: shared by the CPU reference and the CUDA kernel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/philox.h"

namespace veil {

enum class OptimizerKind { sgd, sgd_momentum, adamw };

// Fixed for a run.
struct UpdateRule {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  // bf16 parameters and moments are rounded stochastically: plain rounding freezes them
  uint64_t rounding_seed = 0;
};

// Changes from step to step; is in device memory so that a captured graph can read it.
struct UpdateKnobs {
  double learning_rate = 0, scale = 1, bias_correction1 = 1, bias_correction2 = 1, step = 0;
};

// All of a step's numbers in device memory: what the host sets, and what the step's kernels leave
// for each other and for the host. A tensor of knobs is fp64 [kStepKnobs] and holds one of these.
struct StepKnobs {
  UpdateKnobs update;
  double squared_norm = 0;  // of the summed gradient
  double max_norm = 0;      // 0: no limit
  double loss_sum = 0;      // over the samples
};
inline constexpr int64_t kStepKnobs = sizeof(StepKnobs) / sizeof(double);
// The update reads the front alone.
static_assert(offsetof(StepKnobs, update) == 0 && sizeof(UpdateKnobs) == 5 * sizeof(double) &&
              kStepKnobs == 8);

// The factor that scales an update down to max_norm: scale * min(1, max_norm / (|scale * gradient|
// + 1e-6)), if a limit is set.
VEIL_HOST_DEVICE double clipped_scale(const StepKnobs& knobs) {
  const double scale = knobs.update.scale;
  if (knobs.max_norm <= 0) return scale;
  const double factor = knobs.max_norm / (scale * sqrt(knobs.squared_norm) + 1e-6);
  return factor < 1 ? scale * factor : scale;
}

// Both in the arithmetic's type, made once for many elements.
template <typename Real>
struct UpdateFactors {
  OptimizerKind kind;
  Real learning_rate, scale, momentum, beta1, rest1, beta2, rest2, correction1, correction2,
      epsilon, weight_decay;
};

template <typename Real>
VEIL_HOST_DEVICE UpdateFactors<Real> update_factors(const UpdateRule& rule,
                                                    const UpdateKnobs& knobs) {
  return {rule.kind,
          static_cast<Real>(knobs.learning_rate),
          static_cast<Real>(knobs.scale),
          static_cast<Real>(rule.momentum),
          static_cast<Real>(rule.beta1),
          static_cast<Real>(1 - rule.beta1),
          static_cast<Real>(rule.beta2),
          static_cast<Real>(1 - rule.beta2),
          static_cast<Real>(knobs.bias_correction1),
          static_cast<Real>(knobs.bias_correction2),
          static_cast<Real>(rule.epsilon),
          static_cast<Real>(rule.weight_decay)};
}

// One element: `grad` is the sum over the logical batch; p, m and v are read and written. sgd
// ignores m and v, sgd_momentum uses m.
template <typename Real>
VEIL_HOST_DEVICE Real updated_param(const UpdateFactors<Real>& f, Real p, Real grad, Real& m,
                                    Real& v) {
  const Real g = grad * f.scale;
  if (f.kind == OptimizerKind::adamw) {
    m = f.beta1 * m + f.rest1 * g;
    v = f.beta2 * v + f.rest2 * g * g;
    const Real mean = m / f.correction1;
    const Real spread = static_cast<Real>(sqrt(static_cast<Real>(v / f.correction2))) + f.epsilon;
    // One difference: what decays, alone, may be less than what the parameter is rounded to.
    return p - (f.learning_rate * f.weight_decay * p + f.learning_rate * mean / spread);
  }
  Real direction = g + f.weight_decay * p;
  if (f.kind == OptimizerKind::sgd_momentum) {
    m = f.momentum * m + direction;
    direction = m;
  }
  return p - f.learning_rate * direction;
}

inline constexpr int64_t kRoundingGroup = 8;  // elements whose random bits come from one draw

// The draw that gives elements 8 k to 8 k + 7 their random bits at this step, 16 each, where
// `index` is one of them. Seven rounds: rounding hides nothing.
VEIL_HOST_DEVICE Philox4 rounding_words(const UpdateRule& rule, const UpdateKnobs& knobs,
                                        int64_t index) {
  // RandomDomain::rounding; the step is above it, where fills have 0
  constexpr uint64_t kDomain = 4;
  return philox4x32<7>(rule.rounding_seed, static_cast<uint64_t>(index) / kRoundingGroup,
                       static_cast<uint64_t>(knobs.step) << 32 | kDomain);
}

// What of an element is rounded: a place further on in the draw, so that no two roundings of one
// element share bits.
enum class Rounded { param = 0, first_moment = 3, second_moment = 6 };

// 16 random bits for element `index` at this step; words: its rounding_words.
VEIL_HOST_DEVICE uint32_t rounding_bits(const Philox4& words, int64_t index, Rounded what) {
  const int64_t place = (index + static_cast<int64_t>(what)) % kRoundingGroup;
  return words.word[place / 2] >> (place % 2 * 16) & 0xFFFFu;
}
VEIL_HOST_DEVICE uint32_t rounding_bits(const UpdateRule& rule, const UpdateKnobs& knobs,
                                        int64_t index, Rounded what = Rounded::param) {
  return rounding_bits(rounding_words(rule, knobs, index), index, what);
}

}  // namespace veil
