// How much of an image is left after t steps of noise: betas in equal steps.
#pragma once

#include <cstdint>
#include <vector>

#include "models/dit.h"

namespace veil {

struct NoiseSchedule {
  std::vector<double> kept;  // by timestep: the product of 1 - beta up to and with it
  // x_t = signal(t) x_0 + noise(t) e, with e normal.
  double signal(int64_t timestep) const;
  double noise(int64_t timestep) const;
};
NoiseSchedule noise_schedule(const DitConfig& config);

}  // namespace veil
