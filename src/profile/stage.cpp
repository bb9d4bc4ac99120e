#include "profile/stage.h"

#include "base/process.h"

namespace veil {

StageMemory take_stage_memory(const std::string& stage, int rank, Device device) {
  StageMemory memory;
  memory.stage = stage;
  memory.rank = rank;
  memory.device = device;
  memory.figures = memory::allocator_figures(device);
  memory.resident_bytes = resident_bytes();
  memory.outside_allocator_bytes = memory::outside_allocator_bytes(device);
  for (const Space space : {Space::host, Space::device, Space::pinned}) {
    memory.current[static_cast<size_t>(space)] = memory::current(space);
    memory.peak[static_cast<size_t>(space)] = memory::peak(space, memory::Window::run);
  }
  return memory;
}

}  // namespace veil
