// Whether a GPU is fit to be measured: cool, idle, its memory free and its clock not held down.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "profile/nvml.h"

namespace veil {

// Stated in every record that was made under them.
struct GpuBounds {
  double max_temperature_c = 75;
  double max_busy_percent = 10;  // by somebody else
  double min_free_share = 0.9;   // of its memory
  double min_clock_share = 0.9;  // of the fastest experiment's mean clock; judged afterwards, by the report
  double patience_s = 120;       // how long it is waited for
};

// "" where the GPU is inside the bounds, otherwise what is not, for people.
std::string outside(const GpuBounds& bounds, const GpuState& state);

struct Settling {
  std::function<std::optional<GpuState>(int gpu)> state;  // nothing: there is no such GPU, or nobody to ask
  std::function<void(double seconds)> sleep;
};
// Waits until every GPU is inside the bounds, or patience is over. What was found, for the record; null without a GPU that answers.
nlohmann::ordered_json settle_gpus(const GpuBounds& bounds, const Settling& how);
Settling real_gpus();

}  // namespace veil
