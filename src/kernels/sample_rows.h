// What the CPU references of norms and of sums over tokens share.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/lane_sum.h"

namespace veil {

// The row to normalise: x, or x + add rounded to T, which is left in `sum` (may be x or add).
template <typename T, typename Real>
inline const T* row_to_normalise(const T* x, const T* add, T* sum, int64_t width) {
  if (add == nullptr) return x;
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) sum[j] = static_cast<T>(static_cast<Real>(x[j]) + static_cast<Real>(add[j]));
  return sum;
}

// out[i, j] = the sum over sample i's rows, in order, of term(i, row, j), where row counts within the sample.
template <typename Real, typename Term>
inline void sum_over_samples(int64_t batch, int64_t rows, int64_t width, Real* out, const Term& term) {
  constexpr int64_t kStrip = 256;
  const int64_t strips = (width + kStrip - 1) / kStrip;
  at::parallel_for(0, batch * strips, rows_a_thread(rows * kStrip), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t sample = s / strips, first = s % strips * kStrip, count = std::min(kStrip, width - first);
      Real sums[kStrip] = {};
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t j = 0; j < count; ++j) sums[j] += term(sample, row, first + j);
      }
      std::copy(sums, sums + count, out + sample * width + first);
    }
  });
}

}  // namespace veil
