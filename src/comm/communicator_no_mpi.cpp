#include "base/error.h"
#include "comm/communicator.h"
#include "comm/rank_link.h"

namespace veil {

bool built_with_mpi() {
  return false;
}

std::unique_ptr<Communicator> make_mpi_communicator(int, Device) {
  throw MissingBackend(
      "this build has no MPI: apt-get install libopenmpi-dev openmpi-bin, and build again");
}

std::string mpi_library_version() {
  return "";
}

std::unique_ptr<RankLink> make_mpi_link(const RankInfo&) {
  throw MissingBackend(
      "this build has no MPI: apt-get install libopenmpi-dev openmpi-bin, and build again");
}

}  // namespace veil
