#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "profile/nvml.h"

namespace veil {

struct GpuSampler::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  Summary sums;  // means are sums until the end
  std::thread thread;

  void watch(int gpu_index) {
    std::unique_lock lock(mutex);
    while (!stopping) {
      lock.unlock();
      const std::optional<GpuState> now = gpu_state(gpu_index);
      lock.lock();
      if (!now) return;
      add(*now);
      wake.wait_for(lock, std::chrono::milliseconds(100), [&] { return stopping; });
    }
  }

  void add(const GpuState& now) {
    ++sums.samples;
    sums.mean.utilisation_percent += now.utilisation_percent;
    sums.mean.sm_clock_mhz += now.sm_clock_mhz;
    sums.mean.temperature_c += now.temperature_c;
    sums.mean.power_w += now.power_w;
    sums.max_temperature_c = std::max(sums.max_temperature_c, now.temperature_c);
    sums.max_power_w = std::max(sums.max_power_w, now.power_w);
  }
};

GpuSampler::GpuSampler(int gpu_index) : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get(), gpu_index] { state->watch(gpu_index); });
}

GpuSampler::~GpuSampler() {
  stop();
}

std::optional<GpuSampler::Summary> GpuSampler::stop() {
  if (!state_->thread.joinable()) return std::nullopt;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
  Summary summary = state_->sums;
  if (summary.samples == 0) return std::nullopt;
  summary.mean.utilisation_percent /= summary.samples;
  summary.mean.sm_clock_mhz /= summary.samples;
  summary.mean.temperature_c /= summary.samples;
  summary.mean.power_w /= summary.samples;
  return summary;
}

}  // namespace veil
