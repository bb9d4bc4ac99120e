// The store of torchrun's agent, by which the ranks find rank 0.
#pragma once

#include <string>

#include "comm/rank_link.h"

namespace veil {

// Where rank 0 listens, and the job token that it chose; "" if the ranks have one already.
struct AgentsWord {
  int port = 0;
  std::string token;
};

// Rank 0 tells; the others ask, and wait until it has told. UserError if the agent does not
// answer.
void tell_agent(const RankInfo& info, const AgentsWord& word);
AgentsWord word_from_agent(const RankInfo& info);

}  // namespace veil
