#include <cstring>

#include "comm/host_staging.h"

namespace veil {

void copy_bytes(void* to, const void* from, size_t bytes, Device) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void drain_current_stream(Device) {}

HostStaging::HostStaging(Device device, int slots, size_t slot_bytes)
    : device_(device), slot_bytes_(slot_bytes), plain_(static_cast<size_t>(slots) * slot_bytes) {
  data_ = plain_.data();
}
HostStaging::~HostStaging() = default;

}  // namespace veil
