#include "base/test_paths.h"

namespace veil {

const std::string& source_root() {
  static const std::string path = VEIL_SOURCE_ROOT;
  return path;
}

const std::string& veil_program() {
  static const std::string path = VEIL_PROGRAM;
  return path;
}

const std::string& failing_rank() {
  static const std::string path = VEIL_FAILING_RANK;
  return path;
}

}  // namespace veil
