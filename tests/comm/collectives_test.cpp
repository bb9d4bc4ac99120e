#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace veil {
namespace {

TEST(RankSum, AddsFromLeftToRight) {
  // (1e8 - 1e8) + 1 is 1, 1e8 + (-1e8 + 1) is 0 in fp32.
  const float first = 1e8f, second = -1e8f, third = 1.0f;
  float out = 0;
  const void* terms[] = {&first, &second, &third};
  sum_in_rank_order(at::kFloat, terms, &out, 1);
  EXPECT_EQ(out, 1.0f);
  const void* turned[] = {&first, &third, &second};
  sum_in_rank_order(at::kFloat, turned, &out, 1);
  EXPECT_EQ(out, 0.0f);
}

TEST(RankSum, ShortTypesRoundOnce) {
  const c10::BFloat16 large(256.0f), one(1.0f);
  c10::BFloat16 out(0.0f);
  const void* terms[] = {&large, &one, &one};
  sum_in_rank_order(at::kBFloat16, terms, &out, 1);
  EXPECT_EQ(static_cast<float>(out), 258.0f);
}

TEST(RankSum, GivesTheSameBitsHoweverTheBufferIsCut) {
  const int64_t n = 9001;
  std::vector<std::vector<float>> data(3, std::vector<float>(n));
  for (size_t r = 0; r < 3; ++r) {
    for (size_t i = 0; i < n; ++i)
      data[r][i] = static_cast<float>((i * 2654435761u + r * 40503u) % 1000003) / (r + 0.7f);
  }
  std::vector<float> whole(n), cut(n);
  const void* terms[] = {data[0].data(), data[1].data(), data[2].data()};
  sum_in_rank_order(at::kFloat, terms, whole.data(), n);
  for (int64_t begin = 0; begin < n; begin += 37) {
    const void* parts[] = {&data[0][begin], &data[1][begin], &data[2][begin]};
    sum_in_rank_order(at::kFloat, parts, &cut[begin], std::min<int64_t>(37, n - begin));
  }
  EXPECT_EQ(whole, cut);
}

TEST(RankSum, KeepsTheSignOfZeroAndMayWriteOverATerm) {
  double first = -0.0, second = -0.0;
  const void* terms[] = {&first, &second};
  sum_in_rank_order(at::kDouble, terms, &second, 1);
  EXPECT_TRUE(std::signbit(second));
}

TEST(RankSum, RefusesTypesWithoutASum) {
  int64_t value = 1;
  const void* terms[] = {&value};
  EXPECT_FALSE(can_sum(at::kLong));
  EXPECT_THROW(sum_in_rank_order(at::kLong, terms, &value, 1), std::logic_error);
}

}  // namespace
}  // namespace veil
