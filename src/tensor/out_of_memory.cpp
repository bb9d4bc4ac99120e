#include "tensor/out_of_memory.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>

namespace veil {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return {};
}

// The limit of this process's control group (version 2); nothing if it sets none.
std::optional<int64_t> control_group_limit() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string root = "/sys/fs/cgroup";
    for (const std::string& folder : {root + line.substr(3), root}) {
      if (const auto limit = number_in(folder + "/memory.max")) return limit;
    }
  }
  return {};
}

}  // namespace

std::optional<std::string> out_of_memory_reason(const std::exception& error) {
  if (const auto* device = dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return first_line(device->what_without_backtrace());
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "the host's memory is used up";
  // LibTorch's CPU allocator has no error of its own.
  if (const auto* other = dynamic_cast<const c10::Error*>(&error)) {
    const std::string text = other->what_without_backtrace();
    const size_t found = text.find("DefaultCPUAllocator");
    if (found != std::string::npos) return first_line(text.substr(found));
  }
  return {};
}

int64_t available_host_bytes() {
  int64_t available = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") available = kibibytes * 1024;
  }
  return std::min(available, control_group_limit().value_or(std::numeric_limits<int64_t>::max()));
}

}  // namespace veil
