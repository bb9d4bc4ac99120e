#include "models/noise_schedule.h"

#include <cmath>

namespace veil {

double NoiseSchedule::signal(int64_t timestep) const {
  return std::sqrt(kept[static_cast<size_t>(timestep)]);
}

double NoiseSchedule::noise(int64_t timestep) const {
  return std::sqrt(1 - kept[static_cast<size_t>(timestep)]);
}

NoiseSchedule noise_schedule(const DitConfig& config) {
  NoiseSchedule schedule;
  double product = 1;
  for (int64_t t = 0; t < config.timesteps; ++t) {
    const double part = static_cast<double>(t) / static_cast<double>(config.timesteps - 1);
    product *= 1 - (config.beta_begin + part * (config.beta_end - config.beta_begin));
    schedule.kept.push_back(product);
  }
  return schedule;
}

}  // namespace veil
