#include "privacy/pld.h"

#include <algorithm>
#include <cmath>

#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

constexpr Direction kDirections[] = {Direction::remove, Direction::add};

// Gaussians without sampling compose to one Gaussian: mu^2 = sum of steps / sigma^2. Nothing
// otherwise.
std::optional<double> plain_gaussian_mu(const std::vector<Phase>& run) {
  double squared = 0;
  for (const Phase& phase : run) {
    if (phase.q != 1) return {};
    squared += static_cast<double>(phase.steps) / (phase.sigma * phase.sigma);
  }
  return std::sqrt(squared);
}

// The largest summed loss: infinite for remove, but a record that is added shows no more than that
// it was left out.
double largest_loss(Direction direction, const std::vector<Phase>& run) {
  double sum = 0;
  for (const Phase& phase : run) sum -= static_cast<double>(phase.steps) * std::log1p(-phase.q);
  return direction == Direction::add ? sum : kInfinity;
}

// Bounds in one direction. They need not be near each other if the upper one is not above
// `enough`.
Bounds epsilon_in(Direction direction, const std::vector<Phase>& run, double delta, double accuracy,
                  double enough) {
  // Chernoff's bound of epsilon at this delta gives the tilt.
  const auto first_goal = [&](double tilt, double log_moment) {
    return (log_moment + log_highest_weight(tilt) - std::log(delta)) / tilt;
  };
  Composition first(run, direction, 1e-10 * delta, first_goal);
  if (first.goal() <= 0) return {};
  const double largest = largest_loss(direction, run);
  if (largest <= enough) return {0, largest};
  double aim = accuracy * std::max(1.0, first.goal());
  first.compose(aim);
  Bounds bounds = first.epsilon(delta);
  // Where losses are rare and large that tilt is not the best, nor is the grid: again with those of
  // the epsilon found.
  for (int round = 0; round < 2; ++round) {
    const double wanted = 15 * accuracy * std::max(1.0, bounds.lower);
    if (bounds.upper - bounds.lower <= wanted || bounds.upper <= enough) break;
    const double near = std::min(bounds.upper, first.goal());
    aim /= 10;
    Composition again(run, direction, 1e-10 * delta,
                      [near](double tilt, double log_moment) { return log_moment - tilt * near; });
    again.compose(aim);
    const Bounds found = again.epsilon(delta);
    bounds = {std::max(bounds.lower, found.lower), std::min(bounds.upper, found.upper)};
  }
  return {bounds.lower, std::min(bounds.upper, largest)};
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
    const Bounds bounds = epsilon_in(direction, run, delta, accuracy, worst.upper);
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
    const double log_delta =
        std::max(-600.0, std::min(0.0, Composition(run, direction, 1e-30, bound).goal()));
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
