// What rank tests share. Every rank runs every test, in the same order; a collective in a test is
// called by all ranks. An ASSERT that fails on one rank only leaves the others waiting, so prefer
// EXPECT between collectives.
#pragma once

#include "comm/communicator.h"
#include "comm/launch.h"
#include "engine/executor.h"

namespace veil {

// A communicator of all ranks on CPU, made new for each call.
inline std::unique_ptr<Communicator> cpu_ranks(int lane = 0) {
  return make_host_communicator(lane, cpu_device());
}

// What an executor needs of them; nothing in a world of one.
inline Ranks both_lanes() {
  if (rank_info_from_environment().world == 1) return {};
  return {cpu_ranks(0), cpu_ranks(1)};
}

// Whether any rank says so; every rank hears the same answer.
bool any_rank_says(bool yes);

}  // namespace veil
