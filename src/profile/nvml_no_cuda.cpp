#include "profile/nvml.h"

namespace veil {

std::optional<GpuState> gpu_state(int) {
  return std::nullopt;
}

}  // namespace veil
