#include "base/error.h"

#include <cstring>

namespace veil {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const char* src = std::strstr(file, "src/");
  throw std::logic_error(
      fmt::format("[{}:{}] {} ({})", src ? src : file, line, message, condition));
}

}  // namespace veil
