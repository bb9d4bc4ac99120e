// Time as the program sees it.
#pragma once

#include <chrono>
#include <string>

namespace veil {

// Milliseconds of the steady clock; only differences mean anything.
inline double steady_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string local_time(const char* format);  // strftime's format, now

}  // namespace veil
