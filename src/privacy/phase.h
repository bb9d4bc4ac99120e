// A run as accountants see it: phases of equal steps, and what they have spent. The mechanism is
// the Poisson-sampled Gaussian under add/remove-one neighbours: each step takes every record with
// probability q and adds noise of standard deviation sigma * C to a sum clipped to C.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace veil::privacy {

// Steps with the same setting. A run is a list of phases, one after the other.
struct Phase {
  double sigma = 0;   // noise multiplier; 0 is no noise and so no privacy
  double q = 1;       // sampling rate; 1 is the plain Gaussian mechanism
  int64_t steps = 0;  // empty batches count
  // chance that a step's draw exceeds a maximum and is cut to it (batch_maximum.h); 0: none is
  double overflow = 0;
};

struct Spent {
  double epsilon = 0;  // infinity if nothing protects
  // the exact epsilon is at least epsilon - error; absent if that is not known
  std::optional<double> error;
  std::optional<double> order;  // RDP: the Renyi order that gave it
};

// UserError, in one line, unless 0 <= sigma, 0 <= q <= 1, 0 <= steps and 0 < delta < 1.
void check_phases(const std::vector<Phase>& phases);
void check_delta(double delta);

// The same run without phases that touch no record, and with equal settings joined.
std::vector<Phase> joined(const std::vector<Phase>& phases);
// Whether some step releases a sum without noise. Of joined phases.
bool lacks_noise(const std::vector<Phase>& phases);

}  // namespace veil::privacy
