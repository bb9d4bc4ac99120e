#include "plan/largest_batch.h"

#include <algorithm>

#include "base/error.h"

namespace veil {

LargestBatch largest_batch(int64_t maximum, const std::function<bool(int64_t)>& fits, int64_t guess) {
  VEIL_CHECK(maximum >= 1, "a largest batch of {}", maximum);
  LargestBatch found;
  int64_t low = 0, high = maximum + 1;  // `low` fits, `high` does not: nothing is asked outside
  auto ask = [&](int64_t batch) {
    ++found.trials;
    const bool fit = fits(batch);
    (fit ? low : high) = batch;
    return fit;
  };
  const bool first = ask(std::clamp<int64_t>(guess, 1, maximum));
  for (int64_t step = 1; high - low > 1; step *= 2) {
    if (ask(first ? std::min(low + step, high - 1) : std::max(high - step, low + 1)) != first) break;
  }
  while (high - low > 1) ask(low + (high - low) / 2);
  found.largest = low;
  found.too_large = high <= maximum ? high : 0;
  return found;
}

}  // namespace veil
