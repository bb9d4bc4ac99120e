// A schedule's bytes, row by row, without running it. A test holds them against the ledger's.
#pragma once

#include <array>
#include <vector>

#include "step/schedule.h"

namespace veil {

using SpaceBytes = std::array<CategoryBytes, kSpaces>;  // by Space

struct MemoryRow {
  Part part;
  int op;            // index in the part
  SpaceBytes peak;   // with all that the row creates and its temporaries
  SpaceBytes after;  // when the row has freed
};

struct MemoryEstimate {
  SpaceBytes after_data;   // the samples alone
  SpaceBytes after_model;  // everything resident
  std::vector<MemoryRow> rows;
  CategoryBytes peak(Space space) const;  // at the moment of the largest total
};

// Throws std::logic_error if a buffer is freed that does not live, or one made in the step outlives it.
MemoryEstimate estimate_memory(const Schedule& schedule);

}  // namespace veil
