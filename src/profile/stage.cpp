#include "profile/stage.h"

#include "base/process.h"
#include "base/units.h"

namespace veil {

namespace {

constexpr std::array kAllSpaces{Space::host, Space::device, Space::pinned};

nlohmann::ordered_json by_space(const std::array<CategoryBytes, kSpaces>& spaces) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Space space : kAllSpaces) json[space_name(space)] = to_json(spaces[static_cast<size_t>(space)]);
  return json;
}

}  // namespace

StageMemory take_stage_memory(const std::string& stage, int rank, Device device) {
  StageMemory memory;
  memory.stage = stage;
  memory.rank = rank;
  memory.device = device;
  memory.figures = ledger::allocator_figures(device);
  memory.resident_bytes = resident_bytes();
  memory.outside_allocator_bytes = ledger::outside_allocator_bytes(device);
  for (const Space space : kAllSpaces) {
    memory.current[static_cast<size_t>(space)] = ledger::current(space);
    memory.peak[static_cast<size_t>(space)] = ledger::peak(space, ledger::Window::run);
  }
  return memory;
}

nlohmann::ordered_json to_json(const CategoryBytes& bytes) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (bytes[category] != 0) json[category_name(category)] = bytes[category];
  }
  return json;
}

nlohmann::ordered_json to_json(const StageMemory& memory) {
  return {{"stage", memory.stage},
          {"rank", memory.rank},
          {"log_key", "memory"},
          {"cuda_memory_allocated_GB", to_gib(memory.figures.allocated_bytes)},
          {"cuda_max_memory_allocated_GB", to_gib(memory.figures.max_allocated_bytes)},
          {"cuda_memory_reserved_GB", to_gib(memory.figures.reserved_bytes)},
          {"cuda_max_memory_reserved_GB", to_gib(memory.figures.max_reserved_bytes)},
          {"cpu_memory_rss_GB", to_gib(memory.resident_bytes)},
          {"device", memory.device.str()},
          {"memory_allocated_bytes", memory.figures.allocated_bytes},
          {"max_memory_allocated_bytes", memory.figures.max_allocated_bytes},
          {"memory_reserved_bytes", memory.figures.reserved_bytes},
          {"max_memory_reserved_bytes", memory.figures.max_reserved_bytes},
          {"cpu_memory_rss_bytes", memory.resident_bytes},
          {"outside_allocator_bytes", memory.outside_allocator_bytes},
          {"bytes_by_category", by_space(memory.current)},
          {"peak_bytes_by_category", by_space(memory.peak)}};
}

}  // namespace veil
