// What an optimizer does to one element: shared by the CPU reference and the CUDA kernel.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/philox.h"

namespace veil {

enum class OptimizerKind { sgd, sgd_momentum, adamw };

// Fixed for a run.
struct UpdateRule {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  uint64_t rounding_seed = 0;  // bf16 parameters are rounded stochastically: plain rounding freezes them
};

// Changes from step to step; lies in device memory so that a captured graph can read it.
struct UpdateKnobs {
  double learning_rate = 0, scale = 1, bias_correction1 = 1, bias_correction2 = 1, step = 0;
};

// One element: `grad` is the sum over the logical batch; p, m and v are read and written. sgd ignores m and v, sgd_momentum uses m.
template <typename Real>
VEIL_HOST_DEVICE Real updated_param(const UpdateRule& rule, const UpdateKnobs& knobs, Real p, Real grad, Real& m,
                                    Real& v) {
  const Real lr = static_cast<Real>(knobs.learning_rate), g = grad * static_cast<Real>(knobs.scale);
  if (rule.kind == OptimizerKind::adamw) {
    m = static_cast<Real>(rule.beta1) * m + static_cast<Real>(1 - rule.beta1) * g;
    v = static_cast<Real>(rule.beta2) * v + static_cast<Real>(1 - rule.beta2) * g * g;
    const Real mean = m / static_cast<Real>(knobs.bias_correction1);
    const Real spread = static_cast<Real>(sqrt(static_cast<Real>(v / static_cast<Real>(knobs.bias_correction2)))) +
                        static_cast<Real>(rule.epsilon);
    return p - lr * static_cast<Real>(rule.weight_decay) * p - lr * mean / spread;
  }
  Real direction = g + static_cast<Real>(rule.weight_decay) * p;
  if (rule.kind == OptimizerKind::sgd_momentum) {
    m = static_cast<Real>(rule.momentum) * m + direction;
    direction = m;
  }
  return p - lr * direction;
}

// The draw that gives elements 4 k to 4 k + 3 their random bits at this step, where `index` is one of them.
VEIL_HOST_DEVICE Philox4 rounding_words(const UpdateRule& rule, const UpdateKnobs& knobs, int64_t index) {
  constexpr uint64_t kDomain = 4;  // RandomDomain::rounding; the step stands above it, where fills have 0
  return philox4x32(rule.rounding_seed, static_cast<uint64_t>(index) / 4,
                    static_cast<uint64_t>(knobs.step) << 32 | kDomain);
}

// 16 random bits for element `index` at this step.
VEIL_HOST_DEVICE uint32_t rounding_bits(const UpdateRule& rule, const UpdateKnobs& knobs, int64_t index) {
  return rounding_words(rule, knobs, index).word[index % 4] & 0xFFFFu;
}

}  // namespace veil
