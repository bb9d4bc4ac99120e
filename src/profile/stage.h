// The memory line of a stage (after data creation, after model creation, after warmup, end), one a rank.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "profile/ledger.h"

namespace veil {

struct StageMemory {
  std::string stage;
  int rank = 0;
  Device device = cpu_device();      // where the model lives
  ledger::AllocatorFigures figures;  // of that device
  int64_t resident_bytes = 0;
  int64_t outside_allocator_bytes = 0;
  std::array<CategoryBytes, kSpaces> current, peak;  // by Space; peaks since the start of the run
};

StageMemory take_stage_memory(const std::string& stage, int rank, Device device);

// The seed's keys first and in its order: stage, rank, log_key, cuda_memory_allocated_GB and so on. Their "GB" is 2^30,
// and they hold the figures of "device", also where that is a CPU (there the ledger's own, and reserved equals
// allocated). Then the same in exact bytes, and bytes by category; categories without any are left out.
nlohmann::ordered_json to_json(const StageMemory& memory);

nlohmann::ordered_json to_json(const CategoryBytes& bytes);

}  // namespace veil
