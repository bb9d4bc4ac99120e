#include "base/error.h"
#include "comm/communicator.h"

namespace veil {

bool built_with_mpi() {
  return false;
}

std::unique_ptr<Communicator> make_mpi_communicator(int, Device) {
  throw MissingBackend("this build has no MPI: apt-get install libopenmpi-dev openmpi-bin, and build again");
}

}  // namespace veil
