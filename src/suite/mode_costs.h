// What a step takes more or less than another one of the same work, in words.
#pragma once

#include <string>
#include <vector>

#include "suite/modes.h"

namespace veil {

struct StepDifference {
  int time_sign = 0, memory_sign = 0;  // -1: less, 0: the same, 1: more
  std::string time, memory;            // "2.4% more time", "about the same memory"

  // "than" behind what differs in both.
  const char* word() const { return time_sign != 0 && memory_sign != 0 ? "than" : "compared with"; }
};
// Both ended well, with a time and a peak. Times that differ by no more than the spread of single
// steps are the same, and so is memory that differs by less than 1% of the base's.
StepDifference step_difference(const Record& record, const Record& base);

// Of one mode at every length, the shortest first: "T = 1024 2.4% more time and ...; T = 2048 ...".
// Over no_dp, which is called `plain`; what it takes if there is no no_dp.
std::string mode_costs_text(const std::vector<ModeFigures>& all, const std::string& mode,
                            const std::string& plain = "no_dp");

// Whether it is a private step whose cost over no_dp is known.
bool has_cost(const ModeFigures& figures);

}  // namespace veil
