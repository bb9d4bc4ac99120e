#include "optim/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace veil {
namespace {

using ::testing::HasSubstr;

TEST(LearningRate, WarmUpRisesInEqualPartsToTheBase) {
  for (const auto& kind : names(LearningRateKind{})) {
    const LearningRateSchedule schedule{.kind = kind.value,
                                        .base = 0.5,
                                        .warmup_steps = 4,
                                        .total_steps = 20,
                                        .minimum_ratio = 0.1};
    for (int64_t step = 1; step <= 5; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), 0.1 * static_cast<double>(step))
          << kind.name;
    }
  }
}

TEST(LearningRate, AConstantRateStays) {
  const LearningRateSchedule schedule{.base = 0.5, .total_steps = 3};
  for (const int64_t step : {1, 2, 3, 1000}) EXPECT_EQ(learning_rate_at(schedule, step), 0.5);
}

TEST(LearningRate, ALinearRateFallsInEqualPartsAndStaysAtItsMinimum) {
  const LearningRateSchedule schedule{.kind = LearningRateKind::linear,
                                      .base = 2,
                                      .warmup_steps = 2,
                                      .total_steps = 6,
                                      .minimum_ratio = 0.5};
  const double expected[] = {2.0 / 3, 4.0 / 3, 2, 1.75, 1.5, 1.25, 1, 1};
  for (int64_t step = 1; step <= 8; ++step)
    EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), expected[step - 1]) << step;
}

TEST(LearningRate, ACosineRateIsHalfWayInTheMiddleAndSteepestThere) {
  const LearningRateSchedule schedule{.kind = LearningRateKind::cosine,
                                      .base = 1,
                                      .warmup_steps = 0,
                                      .total_steps = 100,
                                      .minimum_ratio = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 51), 0.6);
  EXPECT_NEAR(learning_rate_at(schedule, 26), 0.2 + 0.8 * (0.5 + std::sqrt(0.5) / 2), 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 101), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 5000), 0.2);
  for (int64_t step = 1; step <= 100; ++step)
    EXPECT_GT(learning_rate_at(schedule, step), learning_rate_at(schedule, step + 1)) << step;
}

TEST(LearningRate, NoStepOfARunIsWastedAtZero) {
  for (const auto& kind : names(LearningRateKind{})) {
    for (const int64_t warmup : {0, 1, 5, 10}) {
      const LearningRateSchedule schedule{.kind = kind.value,
                                          .base = 1,
                                          .warmup_steps = warmup,
                                          .total_steps = 10,
                                          .minimum_ratio = 0};
      check_schedule(schedule);
      for (int64_t step = 1; step <= 10; ++step) {
        EXPECT_GT(learning_rate_at(schedule, step), 0) << kind.name << " " << warmup << " " << step;
        EXPECT_LE(learning_rate_at(schedule, step), 1);
      }
      EXPECT_TRUE(std::isfinite(learning_rate_at(schedule, 11)));
    }
  }
}

TEST(LearningRate, AScheduleThatMakesNoSenseIsRefused) {
  const auto complaint_of = [](const LearningRateSchedule& schedule) -> std::string {
    try {
      check_schedule(schedule);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const LearningRateSchedule good{.kind = LearningRateKind::cosine,
                                  .base = 1,
                                  .warmup_steps = 2,
                                  .total_steps = 5,
                                  .minimum_ratio = 0.1};
  EXPECT_EQ(complaint_of(good), "");
  LearningRateSchedule wrong = good;
  wrong.base = -1;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("learning_rate must be 0 or more, got -1"));
  wrong.base = NAN;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("got nan"));
  wrong.base = INFINITY;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("got inf"));
  wrong = good;
  wrong.warmup_steps = 6;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("warmup_steps must be from 0 to the run's 5, got 6"));
  wrong.warmup_steps = -1;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("got -1"));
  wrong = good;
  wrong.total_steps = 0;
  EXPECT_THAT(complaint_of(wrong), HasSubstr("steps must be at least 1, got 0"));
  wrong = good;
  wrong.minimum_ratio = 1.5;
  EXPECT_THAT(complaint_of(wrong),
              HasSubstr("minimum_lr must be from 0 to 1 times the learning rate, got 1.5"));
  EXPECT_THROW(learning_rate_at(good, 0), std::logic_error);
}

}  // namespace
}  // namespace veil
