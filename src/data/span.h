// A stretch of a text, in bytes.
#pragma once

#include <cstddef>

namespace veil::data {

struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

}  // namespace veil::data
