#include <fmt/core.h>
#include <nccl.h>

#include "comm/versions.h"

namespace veil {

std::string nccl_library_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace veil
