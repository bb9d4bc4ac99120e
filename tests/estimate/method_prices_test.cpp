// Which clip method is taken, and what it is said to cost.
#include "estimate/method_prices.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
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
    return price_methods(shape_, step_, wish, prices_);
  }
  ModelShape shape_;
  StepOptions step_;
  StepPrices prices_ = {assumed_prices(/*on_gpu=*/false, at::kFloat)};
};

TEST_F(AutoPlan, WithoutABudgetTheFastestIsTaken) {
  const std::vector<MethodPrice> found = prices({});
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i - 1].time.ms, found[i].time.ms);
  for (const MethodPrice& price : found) EXPECT_TRUE(price.fits);
}

TEST_F(AutoPlan, AMachineThatMovesSlowlyTakesAnotherPlan) {
  const auto slow_at = [&](std::initializer_list<Amount> amounts) {
    StepPrices slow = prices_;
    for (const Amount amount : amounts) slow.machine.seconds[static_cast<size_t>(amount)] *= 1000;
    return price_methods(shape_, step_, {}, slow).front().method.pass;
  };
  EXPECT_NE(slow_at({Amount::kept, Amount::combined}), PassKind::keep);
  EXPECT_EQ(slow_at({Amount::gram, Amount::tile, Amount::clip}), PassKind::keep);
}

TEST_F(AutoPlan, ExposedCommunicationCounts) {
  const auto slower = [&](double bandwidth) {
    StepOptions two = step_;
    two.world = 2;
    StepPrices prices = prices_;
    prices.link = {.bandwidth_bytes_per_s = bandwidth, .latency_s = 0};
    std::map<PassKind, double> ms;
    for (const MethodPrice& price : price_methods(shape_, two, {}, prices))
      ms[price.method.pass] = price.time.ms;
    return ms[PassKind::two_pass] - ms[PassKind::book];
  };
  // The second backward gathers the parameters once more.
  EXPECT_GT(slower(1e6), 2 * slower(1e15));
}

TEST_F(AutoPlan, TimeAndBytesAreTheSchedulesOwn) {
  for (const MethodPrice& price : prices({})) {
    StepOptions with = step_;
    with.clip = price.method;
    EXPECT_EQ(price.peak_bytes,
              estimate_memory(build_schedule(shape_, with)).peak(Space::host).total());
    EXPECT_EQ(price.time.ms, estimate_time(build_schedule(shape_, with), shape_, prices_).ms);
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
                                            {known_prices(KnownGpu::h200, at::kBFloat16)})
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

}  // namespace
}  // namespace veil
