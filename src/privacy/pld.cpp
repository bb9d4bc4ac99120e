#include "privacy/pld.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "privacy/numerics.h"
#include "privacy/rdp.h"

namespace veil::privacy {
namespace {

constexpr Direction kDirections[] = {Direction::remove, Direction::add};

// Gaussians without sampling compose to one Gaussian: mu^2 = sum of steps / sigma^2.
double gaussian_mu(const std::vector<Phase>& run) {
  double squared = 0;
  for (const Phase& phase : run)
    squared += static_cast<double>(phase.steps) / phase.sigma / phase.sigma;
  return std::sqrt(squared);
}

bool is_unsampled(const std::vector<Phase>& run) {
  return std::all_of(run.begin(), run.end(), [](const Phase& phase) { return phase.q == 1; });
}

// Where the grids resolve a step's loss (pld.h states this range).
bool resolves(const std::vector<Phase>& run) {
  for (const Phase& phase : run) {
    if (phase.sigma < kPldLeastSigma || phase.sigma > kPldMostSigma) return false;
    if (phase.q < kPldLeastRate) return false;
  }
  return true;
}

// Bounds from above that need no grid. Sampling never costs privacy (the divergence of a mixture is
// at most the mixture of divergences), so the unsampled Gaussian is one; RDP is another, here with
// room for its rounding: moments are right to about 1e-14, and steps add them up.
double simple_epsilon(const std::vector<Phase>& run, double delta) {
  const double gaussian = gaussian_epsilon(gaussian_mu(run), delta);
  double steps = 0;
  for (const Phase& phase : run) {
    steps += static_cast<double>(phase.steps);
    if (phase.sigma < kPldLeastSigma) return gaussian;  // RDP's series are long and no better there
  }
  const double rdp = rdp_epsilon(run, delta).epsilon;
  return std::min(gaussian, rdp * (1 + 1e-12) + 1e-13 * (steps + 1));
}

// The larger of two bounds. Arithmetic that failed (NaN) says nothing: no bound from above, and
// nothing from below. (std::max would drop it.)
Bounds larger(Bounds a, Bounds b) {
  const auto lower = [](double x) { return x >= 0 ? x : 0; };
  const auto upper = [](double x) { return std::isnan(x) ? kInfinity : x; };
  return {std::max(lower(a.lower), lower(b.lower)), std::max(upper(a.upper), upper(b.upper))};
}

// Bounds that contradict each other by more than rounding are an error.
Bounds in_order(const char* what, Bounds bounds) {
  VEIL_CHECK(bounds.lower <= bounds.upper * (1 + 1e-9) + 1e-12, "{} is at least {} and at most {}",
             what, bounds.lower, bounds.upper);
  return {std::min(bounds.lower, bounds.upper), bounds.upper};
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
    // Both hold; fmin keeps the one that is a number.
    bounds = {std::fmax(bounds.lower, found.lower), std::fmin(bounds.upper, found.upper)};
  }
  return {bounds.lower, std::fmin(bounds.upper, largest)};
}

}  // namespace

Bounds pld_epsilon_bounds(const std::vector<Phase>& phases, double delta, double accuracy) {
  check_phases(phases);
  check_delta(delta);
  const std::vector<Phase> run = joined(phases);
  if (run.empty()) return {};
  if (lacks_noise(run)) return {kInfinity, kInfinity};
  if (is_unsampled(run)) {
    const double epsilon = gaussian_epsilon(gaussian_mu(run), delta);
    return {epsilon, epsilon};
  }
  const double simple = simple_epsilon(run, delta);
  if (!resolves(run) || delta < kPldLeastDelta) return {0, simple};
  Bounds worst;
  for (const Direction direction : kDirections)
    worst = larger(worst, epsilon_in(direction, run, delta, accuracy, worst.upper));
  return in_order("epsilon", {worst.lower, std::min(worst.upper, simple)});
}

Bounds pld_delta_bounds(const std::vector<Phase>& phases, double epsilon, double accuracy) {
  check_phases(phases);
  const std::vector<Phase> run = joined(phases);
  if (run.empty()) return {};
  if (lacks_noise(run)) return {1, 1};
  const double unsampled = gaussian_delta(gaussian_mu(run), epsilon);
  if (is_unsampled(run)) return {unsampled, unsampled};
  if (!resolves(run)) return {0, unsampled};
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
    worst = larger(worst, sum.delta(epsilon));
  }
  return in_order("delta", worst);
}

Spent pld_epsilon(const std::vector<Phase>& phases, double delta) {
  const Bounds bounds = pld_epsilon_bounds(phases, delta);
  const double error = std::isinf(bounds.upper) ? 0 : bounds.upper - bounds.lower;
  return {.epsilon = bounds.upper, .error = error, .order = {}};
}

}  // namespace veil::privacy
