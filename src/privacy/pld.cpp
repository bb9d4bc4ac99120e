#include "privacy/pld.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "privacy/composition.h"
#include "privacy/normal.h"

namespace veil::privacy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Direction kDirections[] = {Direction::remove, Direction::add};

// Gaussians without sampling compose to one Gaussian: mu^2 = sum of steps / sigma^2. Nothing otherwise.
std::optional<double> plain_gaussian_mu(const std::vector<Phase>& run) {
  double squared = 0;
  for (const Phase& phase : run) {
    if (phase.q != 1) return {};
    squared += static_cast<double>(phase.steps) / (phase.sigma * phase.sigma);
  }
  return std::sqrt(squared);
}

}  // namespace

Bounds pld_epsilon_bounds(const std::vector<Phase>& phases, double delta, double accuracy) {
  check_phases(phases);
  check_delta(delta);
  const std::vector<Phase> run = joined(phases);
  if (run.empty()) return {};
  if (lacks_noise(run)) return {kInfinity, kInfinity};
  if (const auto mu = plain_gaussian_mu(run)) {
    const double epsilon = gaussian_epsilon(*mu, delta);
    return {epsilon, epsilon};
  }
  Bounds worst;
  for (const Direction direction : kDirections) {
    // Chernoff's bound of epsilon at this delta
    Composition sum(run, direction, 1e-10 * delta, [&](double tilt, double log_moment) {
      return (log_moment + log_highest_weight(tilt) - std::log(delta)) / tilt;
    });
    if (sum.goal() <= 0) continue;
    sum.compose(accuracy * std::max(1.0, sum.goal()));
    const Bounds bounds = sum.epsilon(delta);
    worst = {std::max(worst.lower, bounds.lower), std::max(worst.upper, bounds.upper)};
  }
  return worst;
}

Bounds pld_delta_bounds(const std::vector<Phase>& phases, double epsilon, double accuracy) {
  check_phases(phases);
  const std::vector<Phase> run = joined(phases);
  if (run.empty()) return {};
  if (lacks_noise(run)) return {1, 1};
  if (const auto mu = plain_gaussian_mu(run)) {
    const double delta = gaussian_delta(*mu, epsilon);
    return {delta, delta};
  }
  Bounds worst;
  for (const Direction direction : kDirections) {
    const auto bound = [&](double tilt, double log_moment) {
      return log_moment + log_highest_weight(tilt) - tilt * epsilon;  // of ln delta
    };
    // First to learn how small delta is, then with a cut far below it.
    const double log_delta = std::max(-600.0, std::min(0.0, Composition(run, direction, 1e-30, bound).goal()));
    Composition sum(run, direction, 1e-14 * std::exp(log_delta), bound);
    sum.compose(accuracy * std::max(1.0, epsilon));
    const Bounds bounds = sum.delta(epsilon);
    worst = {std::max(worst.lower, bounds.lower), std::max(worst.upper, bounds.upper)};
  }
  return worst;
}

Spent pld_epsilon(const std::vector<Phase>& phases, double delta) {
  const Bounds bounds = pld_epsilon_bounds(phases, delta);
  const double error = std::isinf(bounds.upper) ? 0 : bounds.upper - bounds.lower;
  return {.epsilon = bounds.upper, .error = error, .order = {}};
}

}  // namespace veil::privacy
