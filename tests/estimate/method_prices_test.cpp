// Which clip method is taken, and what it is said to cost.
#include "estimate/method_prices.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "estimate/estimator.h"
#include "models/family.h"
#include "run/clip_choice.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

class AutoPlan : public testing::Test {
 protected:
  AutoPlan()
      : shape_(language_model(*preset_config("llama-tiny"), {.tokens = 64})
                   .shape(4, at::kFloat, /*on_gpu=*/false)) {}
  std::vector<MethodPrice> prices(const MethodWish& wish) const {
    return price_methods(shape_, step_, wish, assumed_roofline(/*on_gpu=*/false, at::kFloat));
  }
  ModelShape shape_;
  StepOptions step_;
};

TEST_F(AutoPlan, WithoutABudgetTheFastestIsTaken) {
  const std::vector<MethodPrice> found = prices({});
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i - 1].extra_ms, found[i].extra_ms);
  for (const MethodPrice& price : found) EXPECT_TRUE(price.fits);
}

TEST_F(AutoPlan, BytesAreTheSchedulesOwn) {
  for (const MethodPrice& price : prices({})) {
    StepOptions with = step_;
    with.clip = price.method;
    EXPECT_EQ(price.peak_bytes,
              estimate_memory(build_schedule(shape_, with)).peak(Space::host).total());
  }
}

TEST_F(AutoPlan, ABudgetTakesTheFastestThatFits) {
  std::vector<MethodPrice> all = prices({});
  int64_t smallest = all[0].peak_bytes, largest = all[0].peak_bytes;
  for (const MethodPrice& price : all) {
    smallest = std::min(smallest, price.peak_bytes);
    largest = std::max(largest, price.peak_bytes);
  }
  ASSERT_LT(smallest, largest);
  const std::vector<MethodPrice> found = prices({.budget_bytes = largest - 1});
  EXPECT_TRUE(found.front().fits);
  EXPECT_LT(found.front().peak_bytes, largest);
  EXPECT_FALSE(found.back().fits);
  EXPECT_EQ(prices({.budget_bytes = smallest - 1}).front().peak_bytes, smallest)
      << "none fits: the smallest is named";
}

TEST_F(AutoPlan, WhatIsAskedForIsTaken) {
  for (PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
    for (NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
      const std::vector<MethodPrice> found = prices({.rule = rule, .pass = pass, .tile = 17});
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found[0].method.pass, pass);
      EXPECT_EQ(found[0].method.tile, 17);
      for (NormRule taken : found[0].method.rules) EXPECT_EQ(taken, rule);
    }
  }
  EXPECT_THROW(prices({.pass = PassKind::per_layer}), UserError);
}

TEST_F(AutoPlan, LongSequencesTurnFromPairsOfTokensToTilesOfTheGradient) {
  auto rule_at = [&](int64_t tokens) {
    const ModelShape shape = language_model(*preset_config("llama3.2-1b"), {.tokens = tokens})
                                 .shape(1, at::kBFloat16, /*on_gpu=*/true);
    StepOptions step;
    step.compute = at::kBFloat16;
    step.on_gpu = true;
    const MethodPrice price = price_methods(shape, step, {.pass = PassKind::book},
                                            assumed_roofline(/*on_gpu=*/true, at::kBFloat16))
                                  .front();
    return price.rules.front().rule;
  };
  EXPECT_EQ(rule_at(256), NormRule::ghost);
  EXPECT_EQ(rule_at(65536), NormRule::flash);
}

TEST_F(AutoPlan, ABudgetThatNothingFitsIsAnErrorBeforeTheStep) {
  ClipChoice choice;
  choice.mode = Mode::automatic;
  choice.memory_budget_gib = 1e-6;
  EXPECT_THROW(clip_method(choice, shape_, step_, /*by_layer=*/false), UserError);
}

TEST(Roofline, IsMeasuredOnceAndKept) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "veil_roofline_test";
  std::filesystem::remove_all(folder);
  const std::string file = (folder / "roofline.json").string();
  const Roofline first = cached_roofline(file, cpu_device(), at::kFloat);
  EXPECT_EQ(first.source, "measured");
  EXPECT_GT(first.flops_per_second, 1e7);
  EXPECT_GT(first.bytes_per_second, 1e7);
  EXPECT_GT(first.launch_seconds, 0);
  const Roofline again = cached_roofline(file, cpu_device(), at::kFloat);
  EXPECT_EQ(again.source, "cached");
  EXPECT_EQ(again.flops_per_second, first.flops_per_second);
  write_file_atomically(file, "{ damaged");
  EXPECT_EQ(cached_roofline(file, cpu_device(), at::kFloat).source, "measured");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace veil
