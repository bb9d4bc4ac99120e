#include "base/clock.h"

#include <ctime>

namespace veil {

std::string local_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[128];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

}  // namespace veil
