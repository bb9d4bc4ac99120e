// The words of a command line: which of them name an option.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"

namespace veil {

inline bool is_option(const std::string& argument) {
  return argument.size() > 2 && argument.rfind("--", 0) == 0;
}

// "--batch_size=4" -> "batch-size"
inline std::string option_name(const std::string& argument) {
  return canonical(std::string_view(argument).substr(2, argument.find('=') - 2));
}

}  // namespace veil
