// What is told, and done, if a rank waits too long for others.
#pragma once

#include <string>
#include <vector>

#include "comm/call_place.h"
#include "comm/wait_clock.h"

namespace veil {

struct OverdueWait {
  std::vector<int> ranks = {};  // those that are waited for; empty: unknown
  std::string call = {};        // "all_reduce of 1000 fp32"
  CallPlace place = {};
  double waited_s = 0;
  std::string whom = {};  // what is waited for instead of ranks: "its data loader"
};

// "rank 2 in all_reduce of 1000 fp32, step 7, body row 12 (reduce layers.1)"
std::string describe(const OverdueWait& wait);

// Looks at the clock of a wait of this rank, and prints the line or ends every rank if it is due.
// Every rank that waits comes to it at about the same time: the first that is not itself waited for
// speaks for all. `describe_wait` is asked only if something is due.
template <typename DescribeWait>
void look_at_wait(WaitClock& clock, const WaitLimits& limits, double now_ms, int rank,
                  DescribeWait describe_wait);

void tell_wait(const OverdueWait& wait, const WaitLimits& limits);
// Ends every rank if this one may already do it.
void end_wait(const OverdueWait& wait, const WaitLimits& limits, int rank);
bool speaks_for(const OverdueWait& wait, int rank);

template <typename DescribeWait>
void look_at_wait(WaitClock& clock, const WaitLimits& limits, double now_ms, int rank,
                  DescribeWait describe_wait) {
  const WaitClock::Due due = clock.look(limits, now_ms);
  if (due == WaitClock::Due::nothing) return;
  OverdueWait wait = describe_wait();
  wait.waited_s = clock.waited_s();
  if (due == WaitClock::Due::end) return end_wait(wait, limits, rank);
  if (speaks_for(wait, rank)) tell_wait(wait, limits);
}

}  // namespace veil
