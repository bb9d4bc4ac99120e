// A fixed piece of host memory through which data passes on its way between ranks. It lies outside
// LibTorch's allocators, so that the ledger of tensors does not see it.
#pragma once

#include <cstddef>
#include <vector>

#include "tensor/stream.h"

namespace veil {

// Copies between `device` and the host are queued on the calling thread's current stream; on CPU
// they happen at once.
void copy_bytes(void* to, const void* from, size_t bytes, Device device);
// Blocks the host until the calling thread's current stream is empty.
void drain_current_stream(Device device);

class HostStaging {
 public:
  // `slots` pieces of `slot_bytes` each, page-locked if `device` is a GPU.
  HostStaging(Device device, int slots, size_t slot_bytes);
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  std::byte* slot(int index) const { return data_ + static_cast<size_t>(index) * slot_bytes_; }
  size_t slot_bytes() const { return slot_bytes_; }

 private:
  Device device_;
  size_t slot_bytes_;
  std::byte* data_ = nullptr;
  std::vector<std::byte> plain_;
};

}  // namespace veil
