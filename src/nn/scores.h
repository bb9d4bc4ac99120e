// What attention that holds whole matrices of scores (nn/attention.h) makes of them.
#pragma once

#include <cstdint>

namespace veil {

// How many, and bytes and FLOPs of all, of one forward. None: no matrix of them is held.
struct Scores {
  int64_t matrices = 0, bytes = 0, flops = 0;
};

}  // namespace veil
