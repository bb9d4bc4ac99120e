// Out of memory as an outcome: LibTorch and the standard library report it in several ways.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace veil {

// What the allocator says, in one line; nothing for an error of another kind.
std::optional<std::string> out_of_memory_reason(const std::exception& error);

// Bytes of host memory that processes can still take: what the kernel calls available, or the limit
// of this process's control group if that is less.
int64_t available_host_bytes();

}  // namespace veil
