// Poisson batches that are cut to a public maximum, so that every step has the same shapes, and
// what that costs ("Scalable DP-SGD: Shuffling vs. Poisson Subsampling", Chua et al. 2024).
//
// A run whose draws are cut differs from the same run without cuts with probability at most
// tail = sum over steps of Pr[draw > maximum]. So if the latter is (epsilon, delta)-private, the
// former is (epsilon, delta + (1 + e^epsilon) tail)-private: the distance counts once for either of
// two neighbours. The larger of two neighbours has one unit more than the data set, so draws are
// binomial of N + 1. Which samples are left out does not matter for this; E stays q N.
#pragma once

#include <functional>
#include <optional>

#include "privacy/phase.h"

namespace veil::privacy {

// ln Pr[Bin(trials, q) > most], never below the truth and at most about 1e-9 above it. Answers 0
// if `most` is below the mean.
double log_binomial_tail(int64_t trials, double q, int64_t most);

// The chance that a step draws more than `most` of the larger of two neighbours, of N + 1 units.
double overflow_chance(int64_t data_size, double q, int64_t most);

// (1 + e^epsilon) times the sum of steps x overflow: what cuts add to delta.
double overflow_delta(const std::vector<Phase>& phases, double epsilon);

// Epsilon at `delta` in all, cuts included, from an accountant that knows of none: `epsilon_at`
// answers for the delta that is left. Infinite if cuts alone cost more.
Spent spent_with_overflow(const std::vector<Phase>& phases, double delta,
                          const std::function<Spent(double delta)>& epsilon_at);

struct BatchMaximum {
  int64_t most = 0;      // 0: the smallest that costs at most kUsualShare of delta
  int64_t multiple = 1;  // that such a one is rounded up to
};
inline constexpr double kUsualShare = 1e-3;  // of delta
// A maximum that costs more of delta is refused: a slightly larger one costs far less.
inline constexpr double kLargestShare = 0.1;

// The smallest multiple of `multiple` whose cuts cost at most `allowed_delta` in `steps` steps.
int64_t smallest_maximum(int64_t data_size, double q, int64_t steps, double epsilon,
                         double allowed_delta, int64_t multiple);

}  // namespace veil::privacy
