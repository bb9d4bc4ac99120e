#include "base/process.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace veil {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size_pages = 0, resident_pages = 0;
  if (!(file >> size_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

}  // namespace veil
