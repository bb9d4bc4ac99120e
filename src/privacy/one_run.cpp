#include "privacy/one_run.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace veil::privacy {
namespace {

// ln of the binomial's mass at k of n.
double log_binomial_mass(int64_t n, int64_t k, double log_p, double log_rest) {
  const auto nn = static_cast<double>(n), kk = static_cast<double>(k);
  return std::lgamma(nn + 1) - std::lgamma(kk + 1) - std::lgamma(nn - kk + 1) + kk * log_p +
         (nn - kk) * log_rest;
}

}  // namespace

double one_run_p_value(int64_t canaries, int64_t guesses, int64_t correct, double epsilon,
                       double delta) {
  VEIL_CHECK(guesses >= 0 && guesses <= canaries && correct <= guesses && epsilon >= 0,
             "{} right of {} guesses on {} canaries", correct, guesses, canaries);
  // Each guess is right with probability e^eps / (1 + e^eps) at most, whatever the others are.
  const double log_p = -std::log1p(std::exp(-epsilon)), log_rest = -epsilon + log_p;
  const auto tail = [&](int64_t from) {  // Pr[Bin >= from]
    double sum = 0;
    for (int64_t k = std::max<int64_t>(0, from); k <= guesses; ++k)
      sum += std::exp(log_binomial_mass(guesses, k, log_p, log_rest));
    return from <= 0 ? 1.0 : std::min(1.0, sum);
  };
  // delta adds 2 m delta max_i Pr[correct - i <= Bin < correct] / i.
  double worst = 0, within = 0;
  for (int64_t i = 1; i <= correct; ++i) {
    within += std::exp(log_binomial_mass(guesses, correct - i, log_p, log_rest));
    worst = std::max(worst, within / static_cast<double>(i));
  }
  return std::min(1.0, tail(correct) + 2 * static_cast<double>(canaries) * delta * worst);
}

double one_run_epsilon(int64_t canaries, int64_t guesses, int64_t correct, double delta,
                       double confidence) {
  const auto refuted = [&](double epsilon) {
    return one_run_p_value(canaries, guesses, correct, epsilon, delta) < 1 - confidence;
  };
  if (!refuted(0)) return 0;
  double low = 0, high = 1;
  while (refuted(high) && high < 64) low = high, high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (refuted(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace veil::privacy
