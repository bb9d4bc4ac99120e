// Prices of this machine, measured on rows of real steps.
#pragma once

#include <functional>
#include <string>

#include "estimate/machine_prices.h"
#include "run/config.h"

namespace veil {

// A step of a cut model whose rows are timed.
struct CalibrationStep {
  std::string name;
  RunConfig config;
};
// Plain and private steps of language models and a diffusion transformer, from sizes that launches
// bound to sizes that products do.
std::vector<CalibrationStep> calibration_steps(bool on_gpu, Precision compute);

// Runs them, about a minute; steps that do not fit in memory are left out.
struct Calibration {
  MachinePrices prices;
  std::vector<Observation> observations;
  std::vector<std::string> steps;  // names, by Observation::step
};
Calibration calibrate(Device device, Precision compute,
                      const std::function<void(const std::string& step, int done, int all)>& told);

}  // namespace veil
