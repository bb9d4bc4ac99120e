#include "comm/versions.h"

namespace veil {

std::string mpi_library_version() {
  return "";
}

}  // namespace veil
