// How tokens are drawn: the distribution, its cuts, and that draws follow it.
#include "kernels/token_draw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/random.h"

namespace veil::token_draw_test {
namespace {

// As the definition has it, in fp64 and by sorting.
std::vector<double> by_definition(const std::vector<float>& logits, const DrawRule& rule) {
  const size_t size = logits.size();
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  // of equals the last by index comes first
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a > b;
  });
  std::vector<double> weight(size, 0.0);
  const double largest = static_cast<double>(logits[order[0]]);
  const float least = rule.top_k > 0 && rule.top_k < static_cast<int64_t>(size)
                          ? logits[order[static_cast<size_t>(rule.top_k) - 1]]
                          : -std::numeric_limits<float>::infinity();
  double total = 0;
  for (size_t v = 0; v < size; ++v) {
    if (logits[v] < least) continue;
    weight[v] = std::exp((static_cast<double>(logits[v]) - largest) /
                         static_cast<double>(rule.temperature));
    total += weight[v];
  }
  double sum = 0, kept = 0;
  for (const size_t v : order) {
    if (rule.top_p < 1 && sum >= rule.top_p * total) weight[v] = 0;
    sum += weight[v];
    kept += weight[v];
  }
  for (double& w : weight) w /= kept;
  return weight;
}

std::vector<float> normal_logits(int64_t size, double deviation, uint64_t seed) {
  const Tensor values = at::zeros({size}, at::kFloat);
  fill_normal(values, deviation, seed, RandomDomain::inputs, 0);
  return {values.data_ptr<float>(), values.data_ptr<float>() + size};
}

const std::vector<DrawRule> kRules = {
    {},
    {.temperature = 0.7f, .top_k = 20, .top_p = 0.9},
    {.temperature = 0.2f},
    {.temperature = 3.0f, .top_p = 0.5},
    {.top_k = 1},
    {.top_p = 1e-6},
    {.temperature = 1.3f, .top_k = 5000, .top_p = 0.99},
};

TEST(TokenDraw, TheDistributionIsTheDefinitions) {
  for (const int64_t size : {1, 2, 97, 1031}) {
    for (const DrawRule& rule : kRules) {
      const std::vector<float> logits = normal_logits(size, 2, 5);
      const std::vector<double> got = token_distribution(logits, rule),
                                expected = by_definition(logits, rule);
      for (size_t v = 0; v < got.size(); ++v) {
        if (expected[v] == 0) {
          EXPECT_EQ(got[v], 0) << size << " token " << v;
        }
        // a mass below 2^-40 of the largest is none
        if (expected[v] > 1e-11) {
          EXPECT_GT(got[v], 0) << size << " token " << v;
        }
        // masses have 40 binary places and the series is right to 2e-9
        EXPECT_NEAR(got[v], expected[v], 1e-8) << size << " token " << v;
      }
    }
  }
}

TEST(TokenDraw, EqualTokensAtTheEdgeOfTopKStayAndAtThatOfTopPOnlyAsManyAsAreNeeded) {
  const std::vector<float> logits{1, 3, 1, 3, 1};
  EXPECT_EQ(token_distribution(logits, {.top_k = 3}),
            token_distribution(logits, {}));  // the third ties with two others
  const std::vector<double> half = token_distribution({2, 2, 2, 2}, {.top_p = 0.5});
  EXPECT_EQ(half, (std::vector<double>{0, 0, 0.5, 0.5}));
}

TEST(TokenDraw, WhatIsNotANumberAndWhatIsInfinitelyUnlikelyIsNeverDrawn) {
  const float infinite = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<double> found = token_distribution({nan, 0, -infinite, 0}, {});
  EXPECT_EQ(found, (std::vector<double>{0, 0.5, 0, 0.5}));
}

struct Draws {
  Tensor logits, seen, samples, places;
};
Draws draws_of(const std::vector<float>& logits, int64_t rows, DType dtype, Device device) {
  const Tensor row = at::from_blob(const_cast<float*>(logits.data()),
                                   {static_cast<int64_t>(logits.size())}, at::kFloat);
  return {row.unsqueeze(0).expand({rows, -1}).to(device, dtype).clone(at::MemoryFormat::Contiguous),
          {},
          at::arange(rows, at::TensorOptions(device).dtype(at::kLong)),
          at::full({rows}, 3, at::TensorOptions(device).dtype(at::kLong))};
}
Tensor draw(const Draws& of, const DrawRule& rule, uint64_t seed) {
  const Tensor tokens = at::full({of.logits.size(0)}, -1, of.samples.options());
  draw_tokens(of.logits, of.seen, rule, seed, of.samples, of.places, tokens);
  return tokens.cpu();
}

TEST(TokenDraw, DrawsFollowTheDistribution) {
  const std::vector<float> logits = normal_logits(40, 1.5, 9);
  for (const DrawRule& rule : kRules) {
    constexpr int64_t kRows = 40000;
    const Tensor tokens = draw(draws_of(logits, kRows, at::kFloat, cpu_device()), rule, 11);
    std::vector<double> count(logits.size());
    for (int64_t i = 0; i < kRows; ++i)
      count[static_cast<size_t>(tokens.data_ptr<int64_t>()[i])] += 1;
    const std::vector<double> expected = token_distribution(logits, rule);
    for (size_t v = 0; v < count.size(); ++v) {
      const double mean = expected[v] * kRows, deviation = std::sqrt(mean * (1 - expected[v]));
      if (expected[v] == 0) {
        EXPECT_EQ(count[v], 0);
      }
      // six deviations: below 2e-9 for each of some 200 tokens
      EXPECT_NEAR(count[v], mean, 6 * deviation + 1) << v;
    }
  }
}

TEST(TokenDraw, ADrawDependsOnSeedTextAndPlaceAlone) {
  const Draws all = draws_of(normal_logits(300, 1, 2), 64, at::kFloat, cpu_device());
  const Tensor tokens = draw(all, {}, 5);
  Draws some{all.logits.narrow(0, 10, 7).contiguous(),
             {},
             all.samples.narrow(0, 10, 7).clone(),
             all.places.narrow(0, 10, 7).clone()};
  EXPECT_TRUE(at::equal(draw(some, {}, 5), tokens.narrow(0, 10, 7)));
  EXPECT_FALSE(at::equal(draw(all, {}, 6), tokens));
  some.places.add_(1);
  EXPECT_FALSE(at::equal(draw(some, {}, 5), tokens.narrow(0, 10, 7)));
}

TEST(TokenDraw, TemperatureZeroTakesTheLargestAndThePenaltyTurnsAwayFromSeenTokens) {
  Draws of = draws_of({1.0f, 2.0f, -0.5f, 1.9f}, 1, at::kFloat, cpu_device());
  EXPECT_EQ(draw(of, {.temperature = 0}, 0).item<int64_t>(), 1);
  of.seen = at::zeros({1, 4}, at::kByte);
  of.seen[0][1].fill_(1);
  EXPECT_EQ(draw(of, {.temperature = 0, .repetition_penalty = 1.5f}, 0).item<int64_t>(), 3);
  // of negative logits the penalty makes more: -0.5 becomes -0.75 and stays behind
  Draws negative = draws_of({-0.6f, -0.5f}, 1, at::kFloat, cpu_device());
  negative.seen = at::zeros({1, 2}, at::kByte);
  negative.seen[0][1].fill_(1);
  EXPECT_EQ(draw(negative, {.temperature = 0, .repetition_penalty = 1.5f}, 0).item<int64_t>(), 0);
}

TEST(GpuTokenDraw, AGpuDrawsTheCpusTokens) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  for (const int64_t size : {1, 2, 97, 1031, 50257, 128256}) {
    for (const DType dtype : {at::kFloat, at::kBFloat16}) {
      for (const DrawRule& rule : kRules) {
        for (const float penalty : {1.0f, 1.3f}) {
          DrawRule own = rule;
          own.repetition_penalty = penalty;
          Draws of = draws_of(normal_logits(size, 2, 7), 33, dtype, cpu_device());
          if (penalty != 1) of.seen = of.logits.gt(0.5).to(at::kByte);
          const Draws there{of.logits.to(gpu), of.seen.defined() ? of.seen.to(gpu) : Tensor(),
                            of.samples.to(gpu), of.places.to(gpu)};
          EXPECT_TRUE(at::equal(draw(of, own, 3), draw(there, own, 3)))
              << size << " " << dtype_name(dtype) << " top_k " << own.top_k << " top_p "
              << own.top_p;
        }
      }
    }
  }
}

}  // namespace
}  // namespace veil::token_draw_test
