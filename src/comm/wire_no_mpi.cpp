#include "base/error.h"
#include "comm/communicator.h"
#include "comm/wire.h"

namespace veil {

bool built_with_mpi() {
  return false;
}

std::string mpi_library_version() {
  return "";
}

std::unique_ptr<Wire> make_mpi_wire() {
  throw MissingBackend(
      "this build has no MPI: apt-get install libopenmpi-dev openmpi-bin, and build again");
}

}  // namespace veil
