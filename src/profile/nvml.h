// What a GPU is doing, as NVIDIA's management library tells it. The library is opened at run time;
// if it is missing there is simply no answer.
#pragma once

#include <memory>
#include <optional>

namespace veil {

struct GpuState {
  // share of the last sampling period (1/6 to 1 s) in which a kernel ran
  double utilisation_percent = 0;
  double sm_clock_mhz = 0;
  double temperature_c = 0;
  double power_w = 0;
  double memory_free_bytes = 0, memory_total_bytes = 0;  // both 0 if the board does not tell
  bool held_down = false;  // the clock is below what was requested, by heat or power
};

// The state now of the GPU that CUDA counts as `gpu_index`; none without the library, the GPU or
// its support.
std::optional<GpuState> gpu_state(int gpu_index);

// Watches a GPU from a thread of its own while it lives, ten times per second.
class GpuSampler {
 public:
  explicit GpuSampler(int gpu_index);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  struct Summary {
    GpuState mean;
    double max_temperature_c = 0;
    double max_power_w = 0;
    int samples = 0;
  };
  // Ends the watching. None if there was no answer from the GPU.
  std::optional<Summary> stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace veil
