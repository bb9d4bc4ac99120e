// Rotary angles: pair j of a head turns by t * value[j] at position t; elements behind the pairs stay
// as they are. Small enough to travel as a
// kernel's argument, so there is no table in memory.
#pragma once

namespace veil {

struct RopeFrequencies {
  static constexpr int kMost = 128;  // pairs in a head: head_dim / 2
  int count = 0;                     // 0: nothing turns
  double value[kMost] = {};
  double scale = 1;  // of what is turned, as longrope has it
};

}  // namespace veil
