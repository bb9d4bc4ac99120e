// Which rank this is, and how the ranks of a World reach each other outside collectives.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace veil {

// The exit code of work that a signal stopped early and that can be continued.
inline constexpr int kExitStopped = 4;

inline constexpr double kCollectiveTimeoutSeconds = 600;

enum class Launcher { none, mpirun, srun, torchrun };

// What the launcher's environment says of this process. world 1 and Launcher::none for a process
// started alone.
struct RankInfo {
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  Launcher launcher = Launcher::none;
  bool by_mpi = false;          // the launcher offers what MPI needs to join
  std::string launcher_socket;  // of launch_local_ranks, where it is the launcher
  std::string master_address;   // where ranks meet that cannot meet by MPI
  int master_port = 0;
  // torchrun's agent keeps a store at that port, in which rank 0 says where the ranks meet.
  bool agent_store = false;
  int attempt = 0;     // of torchrun, which starts ranks again that failed
  int listening = -1;  // rank 0's socket at master_port if the launcher has made it
  // What ranks prove to each other when they meet over TCP; a secret of the job. "": none is known.
  std::string job_token = {};
  std::string user_key_file = {};  // a secret of the user, from which one is derived then
  // A rank that others wait for this long in a collective ends the run; 0: never.
  double collective_timeout_s = kCollectiveTimeoutSeconds;
  // "NAME=value" of all that libraries read to choose how they compute, sorted.
  std::vector<std::string> arithmetic = {};
};

// What the stop signals (comm/stop_signals.h) do to local ranks: end them, or ask them by SIGUSR1
// to end on their own, in their own time. A second signal ends them in either case.
enum class OnSignal { end_ranks, ask_ranks };

class RankWorker;

class RankLink {
 public:
  virtual ~RankLink() = default;
  // Rank 0's bytes reach every rank. Every rank calls it, in the same order.
  virtual void share(void* data, size_t bytes) = 0;
  // What carries the collectives of ranks on CPU. The first call joins every rank to every other,
  // so all ranks make it, in the same order as what they share.
  virtual RankWorker& worker() = 0;
  // Tells people why this rank failed, and ends every rank. Returns if the others could only be
  // left to notice that this rank is gone. `aloud`: whether this rank tells it itself where there
  // is nobody to tell it for all.
  virtual void fail(const std::string& reason, int exit_code, bool aloud) = 0;
};

std::unique_ptr<RankLink> make_mpi_link(const RankInfo& info);
std::unique_ptr<RankLink> make_tcp_link(const RankInfo& info);

// The rank's place and link in the process's World; null without one. `link` is null in a world of
// one.
struct Membership {
  RankInfo info;
  RankLink* link = nullptr;
};
const Membership* current_membership();

// Rank 0's text, on every rank of the World; all ranks call it. The own one without a World.
std::string text_of_rank_0(const std::string& mine);

// World::fail from where no World is at hand. Without one, ends the process alike.
[[noreturn]] void fail_current_world(const std::string& reason, int exit_code);

// The same for ranks that all notice at once that another one hangs; one of them `speaks`.
[[noreturn]] void fail_overdue_world(const std::string& reason, bool speaks);

// The one form in which a rank's failure is told.
std::string failure_line(int rank, int world, const std::string& reason);

}  // namespace veil
