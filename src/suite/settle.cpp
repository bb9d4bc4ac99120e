#include "suite/settle.h"

#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace veil {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kLookSeconds = 2;

}  // namespace

std::string outside(const GpuBounds& bounds, const GpuState& state) {
  std::vector<std::string> found;
  if (state.temperature_c > bounds.max_temperature_c)
    found.push_back(
        fmt::format("{:.0f} C (at most {:.0f})", state.temperature_c, bounds.max_temperature_c));
  if (state.utilisation_percent > bounds.max_busy_percent)
    found.push_back(fmt::format("{:.0f}% busy (at most {:.0f}%)", state.utilisation_percent,
                                bounds.max_busy_percent));
  if (state.memory_total_bytes > 0 &&
      state.memory_free_bytes < bounds.min_free_share * state.memory_total_bytes) {
    found.push_back(fmt::format("{:.0f}% of its memory free (at least {:.0f}%)",
                                100 * state.memory_free_bytes / state.memory_total_bytes,
                                100 * bounds.min_free_share));
  }
  if (state.held_down) found.push_back("its clock held down by heat or power");
  return join(found, ", ");
}

Json settle_gpus(const GpuBounds& bounds, const Settling& how) {
  Json before;
  double waited = 0;
  while (true) {
    before = nullptr;
    std::vector<std::string> wrong;
    for (int gpu = 0;; ++gpu) {
      const auto state = how.state(gpu);
      if (!state) break;
      before["gpus"].push_back({{"temperature_c", state->temperature_c},
                                {"sm_clock_mhz", state->sm_clock_mhz},
                                {"utilisation_percent", state->utilisation_percent},
                                {"memory_free_bytes", state->memory_free_bytes}});
      if (const std::string words = outside(bounds, *state); !words.empty())
        wrong.push_back(fmt::format("GPU {}: {}", gpu, words));
    }
    if (before.is_null()) return before;
    before["outside"] = join(wrong, "; ");
    if (wrong.empty() || waited >= bounds.patience_s) break;
    how.sleep(kLookSeconds);
    waited += kLookSeconds;
  }
  before["waited_s"] = waited;
  before["bounds"] = {{"max_temperature_c", bounds.max_temperature_c},
                      {"max_busy_percent", bounds.max_busy_percent},
                      {"min_free_share", bounds.min_free_share},
                      {"min_clock_share", bounds.min_clock_share},
                      {"patience_s", bounds.patience_s}};
  return before;
}

Settling real_gpus() {
  return {.state = [](int gpu) { return gpu_state(gpu); },
          .sleep =
              [](double seconds) {
                std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
              }};
}

}  // namespace veil
