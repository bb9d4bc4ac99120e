#include "profile/kineto.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/table.h"
#include "base/units.h"

namespace veil {

namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::atomic<bool> profile_running{false};

std::set<ActivityType> activities() {
  std::set<ActivityType> wanted{ActivityType::CPU};
  if (gpu_count() > 0) wanted.insert(ActivityType::CUDA);
  return wanted;
}

torch::profiler::impl::ProfilerConfig config() {
  torch::profiler::impl::ExperimentalConfig experimental;
  experimental.profile_all_threads = true;  // lanes are threads of their own
  return torch::profiler::impl::ProfilerConfig(
      torch::profiler::impl::ProfilerState::KINETO,
      /*report_input_shapes=*/true, /*profile_memory=*/true,
      /*with_stack=*/false, /*with_flops=*/false, /*with_modules=*/false, experimental);
}

// Operators of all threads come to a profile of all threads, memory events only to a listener on
// their own thread. This one passes them on. It is a ProfilerStateBase because LibTorch takes
// whatever stands in this place for one; switched off, it changes nothing else.
class MemoryForwarder final : public torch::profiler::impl::ProfilerStateBase {
 public:
  MemoryForwarder()
      : ProfilerStateBase(
            torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::Disabled,
                                                  /*report_input_shapes=*/false,
                                                  /*profile_memory=*/true)) {}
  void reportMemoryUsage(void* data, int64_t size, size_t allocated, size_t reserved,
                         c10::Device device) override {
    if (auto* profile = get(/*global=*/true))
      profile->reportMemoryUsage(data, size, allocated, reserved, device);
  }
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }
};

std::shared_ptr<c10::DebugInfoBase> memory_forwarder() {
  static const auto forwarder = std::make_shared<MemoryForwarder>();
  return forwarder;
}

std::vector<OperatorTime> sum_up(const std::vector<kineto::KinetoEvent>& events) {
  std::map<std::pair<std::string, bool>, OperatorTime> by_name;
  for (const auto& event : events) {
    if (event.durationNs() == 0) continue;  // moments, such as memory events
    const bool on_gpu = event.deviceType() == c10::DeviceType::CUDA;
    OperatorTime& time = by_name[{event.name(), on_gpu}];
    time.name = event.name();
    time.on_gpu = on_gpu;
    ++time.calls;
    time.total_ms += static_cast<double>(event.durationNs()) * 1e-6;
  }
  std::vector<OperatorTime> sorted;
  for (auto& [name, time] : by_name) sorted.push_back(std::move(time));
  std::stable_sort(sorted.begin(), sorted.end(), [](const OperatorTime& a, const OperatorTime& b) {
    return a.total_ms > b.total_ms;
  });
  return sorted;
}

}  // namespace

KernelProfile::KernelProfile() = default;

KernelProfile::~KernelProfile() {
  if (!running_) return;
  memory_.reset();
  try {
    kineto::disableProfiler();
  } catch (...) {  // a destructor has nobody to tell
  }
  profile_running = false;
}

void KernelProfile::start() {
  VEIL_CHECK(!profile_running.exchange(true), "a kernel profile is running already");
  // Without a GPU Kineto would report as an error that it found none; a level above its errors
  // keeps it quiet.
  if (gpu_count() == 0) setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  try {
    kineto::prepareProfiler(config(), activities());
    kineto::enableProfiler(config(), activities(),
                           {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE,
                            at::RecordScope::BACKWARD_FUNCTION});
  } catch (...) {
    profile_running = false;
    throw;
  }
  memory_.emplace(c10::DebugInfoKind::PROFILER_STATE, memory_forwarder());
  running_ = true;
}

void KernelProfile::stop_and_save(const std::string& path) {
  VEIL_CHECK(running_, "no kernel profile is running");
  memory_.reset();
  const auto result = kineto::disableProfiler();
  running_ = false;
  profile_running = false;
  operators_ = sum_up(result->events());
  // Kineto writes by itself and reports failure to its own log only, so the place is proven first
  // and the file looked for afterwards.
  const std::filesystem::path target(path);
  ensure_folder_writable(target.has_parent_path() ? target.parent_path().string() : ".");
  const std::string part = path + ".part.json";
  result->save(part);
  std::error_code error;
  std::filesystem::rename(part, target, error);
  if (error) user_error("cannot write '{}': {}", path, error.message());
}

std::string KernelProfile::top_table(int rows) const {
  Table table({"name", "where", "calls", "total"});
  for (const bool on_gpu : {true, false}) {
    int left = rows;
    for (const OperatorTime& time : operators_) {
      if (time.on_gpu != on_gpu || left == 0) continue;
      --left;
      table.row({time.name.substr(0, 80), on_gpu ? "gpu" : "host", std::to_string(time.calls),
                 format_ms(time.total_ms)});
    }
  }
  return table.text();
}

void RowRange::begin(const std::string& name) {
  record_.before(name);
  if (profile_running) memory_.emplace(c10::DebugInfoKind::PROFILER_STATE, memory_forwarder());
}

}  // namespace veil
