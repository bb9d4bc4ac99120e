// The largest batch that fits, found by trials that each cost something.
#pragma once

#include <cstdint>
#include <functional>

namespace veil {

struct LargestBatch {
  int64_t largest = 0;    // was seen to fit; 0: not even 1 does
  int64_t too_large = 0;  // was seen not to fit, one above `largest`; 0: `maximum` itself fits
  int trials = 0;
};

// Walks away from `guess` in steps that double until `fits` changes its answer, then halves the gap. Never asks for the same size twice, nor for more than 2 log2(maximum) + 3 of them.
// A predicate whose answers are not monotone still gets a size that fits beside a neighbour that does not.
LargestBatch largest_batch(int64_t maximum, const std::function<bool(int64_t batch)>& fits, int64_t guess = 1);

}  // namespace veil
