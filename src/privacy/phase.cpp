#include "privacy/phase.h"

#include <cmath>

#include "base/error.h"

namespace veil::privacy {

void check_phases(const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    if (!(phase.sigma >= 0) || std::isinf(phase.sigma))
      field_error("sigma", "must be 0 or more, got {}", phase.sigma);
    if (!(phase.q >= 0 && phase.q <= 1))
      field_error("q", "must be a sampling rate from 0 to 1, got {}", phase.q);
    if (phase.steps < 0) field_error("steps", "must be 0 or more, got {}", phase.steps);
    if (!(phase.overflow >= 0 && phase.overflow <= 1))
      user_error("the chance that a batch is cut must be from 0 to 1, got {}", phase.overflow);
  }
}

void check_delta(double delta) {
  if (!(delta > 0 && delta < 1))
    field_error("delta", "must be between 0 and 1, both excluded, got {}", delta);
}

std::vector<Phase> joined(const std::vector<Phase>& phases) {
  std::vector<Phase> result;
  for (const Phase& phase : phases) {
    if (phase.steps == 0 || phase.q == 0) continue;
    bool found = false;
    for (Phase& earlier : result) {
      if (earlier.sigma != phase.sigma || earlier.q != phase.q) continue;
      earlier.steps += phase.steps;
      found = true;
      break;
    }
    if (!found) result.push_back(phase);
  }
  return result;
}

bool lacks_noise(const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    if (phase.sigma == 0) return true;
  }
  return false;
}

}  // namespace veil::privacy
