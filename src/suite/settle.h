// Whether a GPU is ready to be measured: cool, idle, memory free, clock not throttled.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "profile/nvml.h"

namespace veil {

// Part of every record that was measured on a GPU.
struct GpuBounds {
  double max_temperature_c = 75;
  double max_busy_percent = 10;  // with other work
  double min_free_share = 0.9;   // of its memory
  // Of the fastest experiment's mean clock; checked afterwards, by the report.
  double min_clock_share = 0.9;
  double patience_s = 120;  // how long to wait
};

// "" if the GPU is inside the bounds, otherwise what is outside, in words.
std::string outside(const GpuBounds& bounds, const GpuState& state);

struct Settling {
  // nothing: there is no such GPU, or NVML is missing
  std::function<std::optional<GpuState>(int gpu)> state;
  std::function<void(double seconds)> sleep;
};
// Waits until every GPU is inside the bounds, at most patience_s. Returns what was found, for the
// record; null without a GPU.
nlohmann::ordered_json settle_gpus(const GpuBounds& bounds, const Settling& how);
Settling real_gpus();

}  // namespace veil
