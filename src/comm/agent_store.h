// The store of torchrun's agent, by which the ranks find rank 0's port.
#pragma once

#include "comm/rank_link.h"

namespace veil {

// Rank 0 tells; the others ask, and wait until it has told. UserError if the agent does not
// answer.
void tell_agent(const RankInfo& info, int port);
int port_from_agent(const RankInfo& info);

}  // namespace veil
