#include "suite/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace veil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ZeroSuite, TheGridIsTwentyFourExperimentsStrategyByStrategy) {
  const std::vector<Experiment> plan = zero_experiments({}, {"--model", "qwen1.5-1.8b"});
  ASSERT_EQ(plan.size(), 24u);
  EXPECT_EQ(plan.front().name, "zero2_bs2_ga1");
  EXPECT_EQ(plan[11].name, "zero2_bs16_ga4");
  EXPECT_EQ(plan[12].name, "zero3_bs2_ga1");
  EXPECT_EQ(plan.back().name, "zero3_bs16_ga4");
  EXPECT_THAT(plan[4].arguments, ElementsAre("--strategy", "zero2", "--batch-size", "4",
                                             "--accumulation", "2", "--model", "qwen1.5-1.8b"));
}

TEST(ZeroSuite, DdpIsComparedOnRequest) {
  ZeroGrid grid;
  grid.strategies = {Strategy::ddp, Strategy::zero3};
  grid.batch_sizes = {3};
  grid.accumulations = {1};
  const std::vector<Experiment> plan = zero_experiments(grid, {});
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].name, "ddp_bs3_ga1");
  EXPECT_EQ(plan[1].title, "zero3 bs3 ga1");
}

TEST(ZeroSuite, AValueThatStandsTwiceIsRefused) {
  ZeroGrid grid;
  grid.batch_sizes = {2, 4, 2};
  try {
    zero_experiments(grid, {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("zero2_bs2_ga1: a strategy, batch size or accumulation is given twice"));
  }
}

}  // namespace
}  // namespace veil
