// What the operating system says of this process.
#pragma once

#include <cstdint>
#include <string>

namespace veil {

int64_t resident_bytes();  // memory in RAM now (RSS); 0 if /proc is missing
std::string host_name();   // without the domain; "localhost" if the system gives none

}  // namespace veil
