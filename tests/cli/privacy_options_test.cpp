// From a private run's options to its plan.
#include "cli/privacy_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/train_privacy.h"
#include "data/test_folder.h"

namespace veil {
namespace {

using testing::HasSubstr;

PrivacyChoice choice() {
  PrivacyChoice c;
  c.clip_choice.mode = Mode::automatic;
  c.sigma = 1;
  c.delta = 1e-5;
  c.accountant = privacy::AccountantKind::rdp;
  return c;
}

PrivateSetting setting() {
  PrivateSetting s;
  s.samples = 1000;
  s.expected_batch = 100;
  s.epochs = 3;
  return s;
}

TEST(PrivacyOptions, EpochsAreStepsAtTheSamplingRate) {
  EXPECT_EQ(*private_plan(choice(), setting()).request().steps, 30);
  PrivacyChoice shuffled = choice();
  shuffled.sampler = privacy::SamplerKind::shuffled;
  PrivateSetting odd = setting();
  odd.expected_batch = 300;  // three steps an epoch, a tenth left out
  EXPECT_EQ(*private_plan(shuffled, odd).request().steps, 9);
  EXPECT_EQ(*private_plan(choice(), odd).request().steps, 10);
  odd.steps = 4;
  EXPECT_EQ(*private_plan(choice(), odd).request().steps, 4);
}

TEST(PrivacyOptions, ThePublicSizeDecidesTheRate) {
  PrivacyChoice c = choice();
  EXPECT_TRUE(private_plan(c, setting()).request().size_from_data);
  c.data_size = 2000;
  const privacy::PrivacyPlan plan = private_plan(c, setting());
  EXPECT_DOUBLE_EQ(plan.q(), 0.05);
  EXPECT_EQ(plan.expected_batch(), 100);
  EXPECT_FALSE(plan.request().size_from_data);
  c.sampler = privacy::SamplerKind::shuffled;
  EXPECT_THAT(data::complaint([&] { private_plan(c, setting()); }), HasSubstr("--data-size 2000"));
}

TEST(PrivacyOptions, LayersShareOneNormUnlessTheyHaveTheirOwn) {
  PrivacyChoice c = choice();
  c.clip = privacy::ClipFunction::per_layer;
  c.clip_norm = 2;
  PrivateSetting s = setting();
  s.layers = 4;
  const privacy::PrivacyPlan equal = private_plan(c, s);
  EXPECT_EQ(equal.request().layer_norms, std::vector<double>(4, 1.0));
  EXPECT_DOUBLE_EQ(equal.noise_deviation(), 2);
  c.layer_norms = {3, 4, 0.5, 0.5};
  EXPECT_NEAR(private_plan(c, s).noise_deviation(), std::sqrt(25.5), 1e-12);
}

TEST(PrivacyOptions, TheCountsNoiseLeavesTheGradientsMostOfTheBudget) {
  PrivacyChoice c = choice();
  c.clip = privacy::ClipFunction::adaptive;
  for (const double batch : {2.0, 100.0}) {
    PrivateSetting s = setting();
    s.expected_batch = batch;
    const privacy::PrivacyPlan plan = private_plan(c, s);
    EXPECT_EQ(plan.request().adaptive.count_deviation, std::max(1.0, batch / 20));
    EXPECT_LT(plan.gradient_sigma(), 1.16);
  }
  c.sigma.reset();
  c.epsilon = 2;
  const privacy::PrivacyPlan found = private_plan(c, setting());
  EXPECT_GE(found.request().adaptive.count_deviation, found.sigma());
}

TEST(PrivacyOptions, AnExpectedBatchIsCutIntoMicroBatches) {
  struct Row {
    std::vector<std::string> words;
    int world;
    double expected;
    int64_t micro_batch;
    int micro_batches;
  };
  const Row rows[] = {{{"--batch-size", "4"}, 2, 8, 4, 1},
                      {{"--batch-size", "4", "--accumulation", "3"}, 2, 24, 4, 3},
                      {{"--batch-size", "4", "--total-batch-size", "50"}, 2, 50, 4, 7},
                      {{"--total-batch-size", "50"}, 2, 50, 25, 1},
                      {{"--total-batch-size", "50", "--accumulation", "5"}, 1, 50, 10, 5}};
  for (const Row& row : rows) {
    TrainCommand command;
    Options options("train", "");
    add_train_options(options, command);
    std::vector<std::string> words = {"--data", "x"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    ASSERT_TRUE(options.parse(words));
    settle_private_batch(command, options, row.world);
    EXPECT_EQ(*command.expected_batch, row.expected);
    EXPECT_EQ(command.experiment.batch_size, row.micro_batch);
    EXPECT_EQ(command.experiment.accumulation, row.micro_batches);
  }
}

}  // namespace
}  // namespace veil
