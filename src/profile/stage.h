// The memory line of a stage (after data creation, after model creation, after warmup, end), one a
// rank.
#pragma once

#include <array>
#include <string>

#include "profile/memory.h"

namespace veil {

struct StageMemory {
  std::string stage;
  int rank = 0;
  Device device = cpu_device();      // where the model lives
  memory::AllocatorFigures figures;  // of that device
  int64_t resident_bytes = 0;
  int64_t outside_allocator_bytes = 0;
  std::array<CategoryBytes, kSpaces> current, peak;  // by Space; peaks since the start of the run
};

StageMemory take_stage_memory(const std::string& stage, int rank, Device device);

}  // namespace veil
