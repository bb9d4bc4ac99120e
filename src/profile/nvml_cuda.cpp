#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>

#include "profile/nvml.h"
#include "tensor/device.h"

namespace veil {

namespace {

// The few calls of libnvidia-ml that are used, declared here so that the build needs neither its
// header nor its library.
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlClockSm = 1, kNvmlTemperatureGpu = 0;
struct NvmlUtilization {
  unsigned int gpu = 0, memory = 0;
};

struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};
// Reasons why a clock is low: hardware slowdown, thermal slowdown by software or hardware, power
// brake. Idleness and settings are none.
constexpr unsigned long long kNvmlHeldDown = 0x8 | 0x20 | 0x40 | 0x80;

struct Nvml {
  int (*handle_by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned int*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned int*) = nullptr;
  int (*power_milliwatts)(NvmlDevice, unsigned int*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;                 // may be missing
  int (*clock_reasons)(NvmlDevice, unsigned long long*) = nullptr;  // may be missing
  bool usable = false;

  Nvml() {
    // Stays open for the life of the process.
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    int (*init)() = nullptr;
    const bool found = load(library, "nvmlInit_v2", init) &&
                       load(library, "nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus_id) &&
                       load(library, "nvmlDeviceGetUtilizationRates", utilization) &&
                       load(library, "nvmlDeviceGetClockInfo", clock) &&
                       load(library, "nvmlDeviceGetTemperature", temperature) &&
                       load(library, "nvmlDeviceGetPowerUsage", power_milliwatts);
    load(library, "nvmlDeviceGetMemoryInfo", memory);
    load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", clock_reasons);
    usable = found && init() == kNvmlSuccess;
  }

  template <typename Function>
  static bool load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace

std::optional<GpuState> gpu_state(int gpu_index) {
  if (gpu_index < 0 || gpu_index >= gpu_count()) return std::nullopt;
  static const Nvml nvml;
  // CUDA and NVML count GPUs apart (CUDA_VISIBLE_DEVICES); the bus is what they share.
  std::array<char, 32> bus_id{};
  NvmlDevice device = nullptr;
  if (!nvml.usable ||
      cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu_index) !=
          cudaSuccess ||
      nvml.handle_by_bus_id(bus_id.data(), &device) != kNvmlSuccess) {
    return std::nullopt;
  }
  NvmlUtilization utilization;
  if (nvml.utilization(device, &utilization) != kNvmlSuccess) return std::nullopt;
  // Some boards do not tell these; utilisation alone is worth having.
  unsigned int clock_mhz = 0, temperature_c = 0, milliwatts = 0;
  if (nvml.clock(device, kNvmlClockSm, &clock_mhz) != kNvmlSuccess) clock_mhz = 0;
  if (nvml.temperature(device, kNvmlTemperatureGpu, &temperature_c) != kNvmlSuccess)
    temperature_c = 0;
  if (nvml.power_milliwatts(device, &milliwatts) != kNvmlSuccess) milliwatts = 0;
  NvmlMemory memory;
  if (!nvml.memory || nvml.memory(device, &memory) != kNvmlSuccess) memory = {};
  unsigned long long reasons = 0;
  if (!nvml.clock_reasons || nvml.clock_reasons(device, &reasons) != kNvmlSuccess) reasons = 0;
  return GpuState{.utilisation_percent = static_cast<double>(utilization.gpu),
                  .sm_clock_mhz = static_cast<double>(clock_mhz),
                  .temperature_c = static_cast<double>(temperature_c),
                  .power_w = milliwatts / 1000.0,
                  .memory_free_bytes = static_cast<double>(memory.free),
                  .memory_total_bytes = static_cast<double>(memory.total),
                  .held_down = (reasons & kNvmlHeldDown) != 0};
}

}  // namespace veil
