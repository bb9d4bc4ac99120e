#include "privacy/rdp.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

// ln(e^a - e^b); infinity, which bounds anything, if hardly a digit of the difference is left.
double log_subtract(double a, double b) {
  if (b == -kInfinity) return a;
  if (!(a - b > 1e-3)) return kInfinity;
  return a + std::log(-std::expm1(b - a));
}

// ln E[(p/q)^order] for a whole order: a binomial sum, section 3.3 of Mironov et al.
double log_moment_whole(double sigma, double q, int order) {
  double sum = -kInfinity, log_binomial = 0;
  for (int i = 0; i <= order; ++i) {
    const double term = log_binomial + i * std::log(q) + (order - i) * std::log1p(-q) +
                        (static_cast<double>(i) * i - i) / (2 * sigma * sigma);
    sum = log_add(sum, term);
    log_binomial += std::log(static_cast<double>(order - i)) - std::log(static_cast<double>(i + 1));
  }
  return sum;
}

// The same for any order: the integral is cut where both halves of the mixture are equal, and each
// part expanded in its own binomial series (same section). Terms change sign; positive and negative
// ones are kept apart.
double log_moment_fractional(double sigma, double q, double order) {
  const double cut = sigma * sigma * (std::log1p(-q) - std::log(q)) + 0.5;
  const double scale = std::numbers::sqrt2 * sigma;
  double positive = -kInfinity, negative = -kInfinity;
  double log_binomial = 0;
  int sign = 1;
  bool ended = false;
  for (int i = 0; i < 100000 && !ended; ++i) {
    const double j = order - i;
    const double left = log_binomial + i * std::log(q) + j * std::log1p(-q) +
                        (static_cast<double>(i) * i - i) / (2 * sigma * sigma) - std::numbers::ln2 +
                        log_erfc((i - cut) / scale);
    const double right = log_binomial + j * std::log(q) + i * std::log1p(-q) +
                         (j * j - j) / (2 * sigma * sigma) - std::numbers::ln2 +
                         log_erfc((cut - j) / scale);
    if (std::isnan(left) || std::isnan(right)) return kInfinity;
    double& sum = sign > 0 ? positive : negative;
    sum = log_add(sum, log_add(left, right));
    ended = i > order && std::max(left, right) < positive - 36;
    log_binomial += std::log(std::abs(j)) - std::log(static_cast<double>(i + 1));
    if (j < 0) sign = -sign;
  }
  return ended ? log_subtract(positive, negative) : kInfinity;
}

}  // namespace

const std::vector<double>& rdp_orders() {
  static const std::vector<double> orders = [] {
    std::vector<double> result;
    for (int tenth = 11; tenth <= 109; ++tenth) result.push_back(tenth / 10.0);
    for (int whole = 12; whole <= 63; ++whole) result.push_back(whole);
    return result;
  }();
  return orders;
}

double rdp_of_step(double sigma, double q, double order) {
  VEIL_CHECK(order > 1, "an order of {}", order);
  if (q == 0) return 0;
  if (sigma == 0) return kInfinity;
  if (q == 1) return order / (2 * sigma * sigma);
  const bool whole = order == std::floor(order);
  const double log_moment = whole ? log_moment_whole(sigma, q, static_cast<int>(order))
                                  : log_moment_fractional(sigma, q, order);
  // Where exponents overflow nothing is known. (std::max would make 0 of NaN.)
  if (std::isnan(log_moment)) return kInfinity;
  return std::max(0.0, log_moment / (order - 1));
}

Spent rdp_epsilon(const std::vector<Phase>& phases, double delta) {
  check_phases(phases);
  check_delta(delta);
  const std::vector<Phase> run = joined(phases);
  if (run.empty()) return {.epsilon = 0, .error = {}, .order = {}};
  Spent best{.epsilon = kInfinity, .error = {}, .order = {}};
  if (lacks_noise(run)) return best;
  for (const double order : rdp_orders()) {
    double divergence = 0;
    for (const Phase& phase : run)
      divergence += static_cast<double>(phase.steps) * rdp_of_step(phase.sigma, phase.q, order);
    const double epsilon = divergence - (std::log(delta) + std::log(order)) / (order - 1) +
                           std::log((order - 1) / order);
    if (epsilon < best.epsilon)
      best = {.epsilon = std::max(0.0, epsilon), .error = {}, .order = order};
  }
  return best;
}

}  // namespace veil::privacy
