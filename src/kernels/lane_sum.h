// What CPU references share: sums in a fixed order that a compiler can turn into vector code:
// without -ffast-math it may not reorder a plain loop's additions itself.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace veil {

// The sum of term(j) over [0, count): sixteen interleaved sums, then those in pairs.
template <typename Real, typename Term>
inline Real lane_sum(int64_t count, const Term& term) {
  constexpr int64_t kLanes = 16;
  Real lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(j + k);
  }
  for (int64_t j = whole; j < count; ++j) lanes[j - whole] += term(j);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

// The greatest of `floor` and term(j) over [0, count); what is not a number is passed over.
template <typename Real, typename Term>
inline Real lane_max(int64_t count, Real floor, const Term& term) {
  constexpr int64_t kLanes = 16;
  Real lanes[kLanes];
  std::fill(lanes, lanes + kLanes, floor);
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const Real value = term(j + k);
      lanes[k] = value > lanes[k] ? value : lanes[k];
    }
  }
  for (int64_t j = whole; j < count; ++j) lanes[0] = term(j) > lanes[0] ? term(j) : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

// How many rows a thread takes at least: about 32 Ki elements.
inline int64_t rows_a_thread(int64_t width) {
  return std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, width));
}

// The row to normalise: x, or x + add rounded to T, which is left in `sum` (may be x or add).
template <typename T, typename Real>
inline const T* row_to_normalise(const T* x, const T* add, T* sum, int64_t width) {
  if (add == nullptr) return x;
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j)
    sum[j] = static_cast<T>(static_cast<Real>(x[j]) + static_cast<Real>(add[j]));
  return sum;
}

// out[i, j] = the sum over sample i's rows, in order, of term(i, row, j), where row counts within
// the sample.
template <typename Real, typename Term>
inline void sum_over_samples(int64_t batch, int64_t rows, int64_t width, Real* out,
                             const Term& term) {
  constexpr int64_t kStrip = 256;
  const int64_t strips = (width + kStrip - 1) / kStrip;
  at::parallel_for(0, batch * strips, rows_a_thread(rows * kStrip),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t s = begin; s < end; ++s) {
                       const int64_t sample = s / strips, first = s % strips * kStrip,
                                     count = std::min(kStrip, width - first);
                       Real sums[kStrip] = {};
                       for (int64_t row = 0; row < rows; ++row) {
                         for (int64_t j = 0; j < count; ++j)
                           sums[j] += term(sample, row, first + j);
                       }
                       std::copy(sums, sums + count, out + sample * width + first);
                     }
                   });
}

}  // namespace veil
