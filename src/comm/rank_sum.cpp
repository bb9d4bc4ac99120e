#include "comm/rank_sum.h"

#include <algorithm>

#include "base/error.h"

namespace veil {
namespace {

constexpr int64_t kBlock = 2048;  // elements whose partial sums stay in the first cache

template <typename T, typename Sum>
void sum_as(std::span<const void* const> terms, T* out, int64_t count) {
  Sum partial[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(terms[0]) + begin;
    for (int64_t i = 0; i < n; ++i) partial[i] = static_cast<Sum>(first[i]);
    for (size_t r = 1; r < terms.size(); ++r) {
      const T* term = static_cast<const T*>(terms[r]) + begin;
      for (int64_t i = 0; i < n; ++i) partial[i] += static_cast<Sum>(term[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(partial[i]);
  }
}

}  // namespace

bool can_sum(DType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}

void sum_in_rank_order(DType dtype, std::span<const void* const> terms, void* out, int64_t count) {
  VEIL_CHECK(!terms.empty(), "a sum of nothing");
  switch (dtype) {
    case at::kFloat:
      return sum_as<float, float>(terms, static_cast<float*>(out), count);
    case at::kDouble:
      return sum_as<double, double>(terms, static_cast<double*>(out), count);
    case at::kBFloat16:
      return sum_as<c10::BFloat16, float>(terms, static_cast<c10::BFloat16*>(out), count);
    case at::kHalf:
      return sum_as<c10::Half, float>(terms, static_cast<c10::Half*>(out), count);
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("sums of type {} are not defined", dtype_name(dtype)));
  }
}

}  // namespace veil
