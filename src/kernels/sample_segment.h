// A range of a sample's elements that is normed by itself.
#pragma once

#include <cstdint>

namespace veil {

struct SampleSegment {
  int64_t offset = 0, numel = 0;  // elements
  int64_t row = 0;                // of the squared norms
};

}  // namespace veil
