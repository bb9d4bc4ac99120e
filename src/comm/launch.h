// How many ranks there are, which one this is, and how they find each other.
#pragma once

#include <string>
#include <vector>

namespace veil {

enum class Launcher { none, mpirun, srun, torchrun };

// What the launcher's environment says of this process. world 1 and Launcher::none for a process started alone.
struct RankInfo {
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  Launcher launcher = Launcher::none;
};
RankInfo rank_info_from_environment();

// Starts `ranks` copies of this program with the same arguments under mpirun and replaces this process's work by waiting for them. Returns
// the exit code to leave with: 0, or that of the first rank that failed.
int launch_local_ranks(int ranks, const std::vector<std::string>& arguments);

// Joins the ranks (MPI_Init or the NCCL rendezvous). Call once, before any communicator. If any rank dies or calls fail(), every other rank ends within 10 seconds,
// with one message that names the rank and the reason, and an exit code that is not 0.
class World {
 public:
  explicit World(const RankInfo& info);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Reports why this rank cannot go on, ends every rank, does not return.
  [[noreturn]] void fail(const std::string& reason, int exit_code);
};

}  // namespace veil
