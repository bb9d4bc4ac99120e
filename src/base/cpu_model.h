// The processor's name.
#pragma once

#include <string>

namespace veil {

std::string cpu_model();

}  // namespace veil
