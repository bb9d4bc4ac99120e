// How many ranks there are, which one this is, and how they find each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rank_link.h"

namespace veil {

// What the launcher's environment says of this process.
RankInfo rank_info_from_environment();

// Starts `ranks` copies of this program with the same arguments, under mpirun or, if there is
// none or the build has no MPI, as plain processes that meet over TCP, and replaces this process's
// work by waiting for them. Returns the exit code to leave with: 0, or that of the first
// rank that failed.
int launch_local_ranks(int ranks, const std::vector<std::string>& arguments,
                       OnSignal on_signal = OnSignal::end_ranks);

// Joins the ranks (by MPI, or over TCP if the launcher knows no MPI). Call once, before any
// communicator, and let every communicator end before it. If any rank dies or calls fail(), every
// other rank ends within 10 seconds, with one message that names the rank and the reason, and an
// exit code that is not 0.
class World {
 public:
  explicit World(const RankInfo& info);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  const RankInfo& info() const;
  // Reports why this rank cannot continue, ends every rank, does not return.
  [[noreturn]] void fail(const std::string& reason, int exit_code, bool aloud = true);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace veil
