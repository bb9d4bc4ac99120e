// Which ranks still answer, whatever their work is doing: a thread of each rank answers rank 0 once
// a second. For waits that no message between ranks explains, such as those on a GPU.
#pragma once

#include <vector>

namespace veil {

// A link that knows. Rank 0 knows of all ranks, the others of rank 0.
class Liveness {
 public:
  virtual ~Liveness() = default;
  virtual std::vector<int> silent_ranks() = 0;  // for 5 seconds; ascending
};

// Of the process's World; empty if all answer, or if its link does not know (MPI).
std::vector<int> silent_ranks();

}  // namespace veil
