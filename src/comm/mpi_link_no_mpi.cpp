#include "base/error.h"
#include "comm/rank_link.h"

namespace veil {

std::unique_ptr<RankLink> make_mpi_link(const RankInfo&) {
  throw MissingBackend("this build has no MPI: apt-get install libopenmpi-dev openmpi-bin, and build again");
}

}  // namespace veil
