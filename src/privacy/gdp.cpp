#include "privacy/gdp.h"

#include <cmath>
#include <limits>

#include "privacy/normal.h"

namespace veil::privacy {

double gdp_mu(const std::vector<Phase>& phases) {
  double squared = 0;
  for (const Phase& phase : joined(phases)) {
    if (phase.sigma == 0) return std::numeric_limits<double>::infinity();
    squared += phase.q * phase.q * static_cast<double>(phase.steps) * std::expm1(1 / (phase.sigma * phase.sigma));
  }
  return std::sqrt(squared);
}

Spent gdp_epsilon(const std::vector<Phase>& phases, double delta) {
  check_phases(phases);
  check_delta(delta);
  return {.epsilon = gaussian_epsilon(gdp_mu(phases), delta), .error = {}, .order = {}};
}

}  // namespace veil::privacy
