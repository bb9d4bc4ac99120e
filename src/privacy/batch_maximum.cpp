#include "privacy/batch_maximum.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

// What rounding can do to the logarithm of a tail; tested against exact sums.
constexpr double kTailRounding = 1e-9;
// Of a tail's terms. The rest of them is bounded, from above as everything here.
constexpr int64_t kMostTerms = 1'000'000;

// ln n! less Stirling's formula n ln n - n + ln(2 pi n) / 2.
double stirling_error(double n) {
  if (n < 16)
    return std::lgamma(n + 1) - (n + 0.5) * std::log(n) + n - 0.5 * std::log(2 * std::numbers::pi);
  const double r = 1 / (n * n);
  return (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / n;
}

// x ln(x / m) + m - x without cancellation where x is near m (Loader, "Fast and accurate
// computation of binomial probabilities", 2000).
double deviance(double x, double m) {
  const double v = (x - m) / (x + m);
  if (std::abs(v) >= 0.1) return x * std::log(x / m) + m - x;
  double term = 2 * x * v, sum = (x - m) * v;
  for (int k = 1; k < 1000; ++k) {
    term *= v * v;
    const double next = sum + term / (2 * k + 1);
    if (next == sum) break;
    sum = next;
  }
  return sum;
}

double log_binomial(int64_t trials, double q, int64_t hits) {
  const auto n = static_cast<double>(trials), k = static_cast<double>(hits), rest = n - k;
  if (hits == trials) return n * std::log(q);
  if (hits == 0) return n * std::log1p(-q);
  return stirling_error(n) - stirling_error(k) - stirling_error(rest) - deviance(k, n * q) -
         deviance(rest, n * (1 - q)) + 0.5 * std::log(n / (2 * std::numbers::pi * k * rest));
}

}  // namespace

double log_binomial_tail(int64_t trials, double q, int64_t most) {
  VEIL_CHECK(trials >= 0 && most >= 0 && q >= 0 && q <= 1, "a tail of {} trials at {} beyond {}",
             trials, q, most);
  if (most >= trials || q == 0) return -kInfinity;
  const auto n = static_cast<double>(trials);
  if (q == 1 || static_cast<double>(most + 1) <= n * q) return 0;
  // Terms relative to the first. Their ratio falls, so what follows a term is at most a geometric
  // series.
  const double odds = q / (1 - q);
  double term = 1, sum = 0;
  for (int64_t k = most + 1;; ++k) {
    sum += term;
    const double ratio = static_cast<double>(trials - k) / static_cast<double>(k + 1) * odds;
    const double after = ratio < 1 ? term * ratio / (1 - ratio) : kInfinity;
    if (after <= 1e-12 * sum || k - most > kMostTerms) {
      sum += after;
      break;
    }
    term *= ratio;
  }
  return std::min(0.0, log_binomial(trials, q, most + 1) + std::log(sum) + kTailRounding);
}

double overflow_chance(int64_t data_size, double q, int64_t most) {
  const double log_chance = log_binomial_tail(data_size + 1, q, most);
  // no chance is rounded to none
  return std::isinf(log_chance) ? 0 : std::max(1e-300, std::exp(log_chance));
}

double overflow_delta(const std::vector<Phase>& phases, double epsilon) {
  double tail = 0;
  for (const Phase& phase : phases) tail += static_cast<double>(phase.steps) * phase.overflow;
  return tail == 0 ? 0 : (1 + std::exp(epsilon)) * tail;
}

Spent spent_with_overflow(const std::vector<Phase>& phases, double delta,
                          const std::function<Spent(double delta)>& epsilon_at) {
  check_delta(delta);
  Spent spent = epsilon_at(delta);
  if (overflow_delta(phases, 0) == 0) return spent;
  // The exact epsilon with cuts is no less than without.
  const double least = spent.epsilon - spent.error.value_or(0);
  const bool has_error = spent.error.has_value();
  // From below: cuts are paid for at a guess, and the guess holds where epsilon does not exceed it.
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds && std::isfinite(spent.epsilon); ++round) {
    const double guess = spent.epsilon + 1e-7 * std::max(1.0, spent.epsilon);
    const double left = delta - overflow_delta(phases, guess);
    if (!(left > 0)) break;
    spent = epsilon_at(left);
    if (spent.epsilon > guess) continue;
    if (has_error) spent.error = spent.epsilon - least;
    return spent;
  }
  return {.epsilon = kInfinity, .error = {}, .order = {}};
}

int64_t smallest_maximum(int64_t data_size, double q, int64_t steps, double epsilon,
                         double allowed_delta, int64_t multiple) {
  const double limit = std::log(allowed_delta) - log_add(0, epsilon) -
                       std::log(static_cast<double>(std::max<int64_t>(1, steps)));
  // no draw exceeds `high`
  int64_t low = 0, high = (data_size + multiple) / multiple;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (log_binomial_tail(data_size + 1, q, middle * multiple) <= limit ? high : low) = middle;
  }
  return high * multiple;
}

}  // namespace veil::privacy
