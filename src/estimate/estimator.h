// A schedule's bytes, row by row, without running it. A test holds them against the memory
// tracker's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

// Throws std::logic_error if a buffer is freed that does not live, or one made in the step outlives
// it.
MemoryEstimate estimate_memory(const Schedule& schedule);

// The largest batch that fits, found by trials that each cost something.
struct LargestBatch {
  int64_t largest = 0;    // was seen to fit; 0: not even 1 does
  int64_t too_large = 0;  // was seen not to fit, one above `largest`; 0: `maximum` itself fits
  int trials = 0;
};

// Walks away from `guess` in steps that double until `fits` changes its answer, then halves the
// gap. Never asks for the same size twice, nor for more than 2 log2(maximum) + 3 of them. A
// predicate that is not monotone still gets a size that fits next to a neighbour that does
// not.
LargestBatch largest_batch(int64_t maximum, const std::function<bool(int64_t batch)>& fits,
                           int64_t guess = 1);

// What a run of a batch took.
struct BatchRun {
  bool fits = false;
  int64_t bytes = 0;  // 0: it ran out of memory
};
// The largest batch by the estimate, confirmed by a run of it and one of the next. If it does not
// fit, the second run is of the largest that would with the difference seen, or with 3 % if it ran
// out of memory; only if this does not fit either are there more runs, each smaller. So `too_large`
// need not be one above `largest` here.
LargestBatch confirmed_batch(int64_t maximum, int64_t limit_bytes,
                             const std::function<int64_t(int64_t batch)>& estimate,
                             const std::function<BatchRun(int64_t batch)>& run);

}  // namespace veil
