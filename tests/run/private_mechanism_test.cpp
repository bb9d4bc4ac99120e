// From a private run's configuration to its mechanism.
#include "run/private_mechanism.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/test_folder.h"
#include "run/train_config.h"

namespace veil {
namespace {

using testing::HasSubstr;

PrivacyConfig choice() {
  PrivacyConfig c;
  c.method.mode = Mode::automatic;
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

TEST(PrivateRun, EpochsAreStepsAtTheSamplingRate) {
  EXPECT_EQ(*private_mechanism(choice(), setting()).request().steps, 30);
  PrivacyConfig shuffled = choice();
  shuffled.sampler = privacy::SamplerKind::shuffled;
  PrivateSetting odd = setting();
  odd.expected_batch = 300;  // three steps per epoch, a tenth left out
  EXPECT_EQ(*private_mechanism(shuffled, odd).request().steps, 9);
  EXPECT_EQ(*private_mechanism(choice(), odd).request().steps, 10);
  odd.steps = 4;
  EXPECT_EQ(*private_mechanism(choice(), odd).request().steps, 4);
}

TEST(PrivateRun, ThePublicSizeDecidesTheRate) {
  PrivacyConfig c = choice();
  EXPECT_TRUE(private_mechanism(c, setting()).request().size_from_data);
  c.data_size = 2000;
  const privacy::Mechanism mechanism = private_mechanism(c, setting());
  EXPECT_DOUBLE_EQ(mechanism.q(), 0.05);
  EXPECT_EQ(mechanism.expected_batch(), 100);
  EXPECT_FALSE(mechanism.request().size_from_data);
  c.sampler = privacy::SamplerKind::shuffled;
  EXPECT_THAT(data::complaint([&] { private_mechanism(c, setting()); }),
              HasSubstr("data_size 2000"));
}

TEST(PrivateRun, AMaximumIsRoundedToTheMicroBatchesOfAllRanks) {
  PrivacyConfig c = choice();
  c.max_batch = "auto";
  PrivateSetting s = setting();
  s.multiple = 24;
  const privacy::Mechanism mechanism = private_mechanism(c, s);
  EXPECT_GT(mechanism.batch_maximum(), 100);
  EXPECT_EQ(mechanism.batch_maximum() % 24, 0);
  c.max_batch = "190";
  EXPECT_EQ(private_mechanism(c, s).batch_maximum(), 190);
  c.data_size = 999;
  EXPECT_THAT(data::complaint([&] { private_mechanism(c, s); }), HasSubstr("data_size 999"))
      << "a larger data set than is accounted for";
  for (const char* wrong : {"0", "-3", "12x", "automatic"})
    EXPECT_THAT(data::complaint([&] { maximum_of(wrong); }), HasSubstr("allowed is")) << wrong;
}

TEST(PrivateRun, UsersAreCountedAndDrawn) {
  PrivacyConfig c = choice();
  c.unit = privacy::PrivacyUnit::user;
  EXPECT_THAT(data::complaint([&] { private_mechanism(c, setting()); }), HasSubstr("unit_key"));
  PrivateSetting s = setting();
  s.users = true;
  s.samples = 40;
  EXPECT_THAT(data::complaint([&] { private_mechanism(c, s); }),
              HasSubstr("the data has 40 users, fewer than the expected batch of 100"));
  s.expected_batch = 10;
  EXPECT_DOUBLE_EQ(private_mechanism(c, s).q(), 0.25);
}

TEST(PrivateRun, LayersShareOneNormUnlessTheyHaveTheirOwn) {
  PrivacyConfig c = choice();
  c.clip = privacy::ClipFunction::per_layer;
  c.clip_norm = 2;
  PrivateSetting s = setting();
  s.layers = 4;
  const privacy::Mechanism equal = private_mechanism(c, s);
  EXPECT_EQ(equal.request().layer_norms, std::vector<double>(4, 1.0));
  EXPECT_DOUBLE_EQ(equal.noise_deviation(), 2);
  c.layer_norms = {3, 4, 0.5, 0.5};
  EXPECT_NEAR(private_mechanism(c, s).noise_deviation(), std::sqrt(25.5), 1e-12);
}

TEST(PrivateRun, TheCountsNoiseLeavesTheGradientsMostOfTheBudget) {
  PrivacyConfig c = choice();
  c.clip = privacy::ClipFunction::adaptive;
  for (const double batch : {2.0, 100.0}) {
    PrivateSetting s = setting();
    s.expected_batch = batch;
    const privacy::Mechanism mechanism = private_mechanism(c, s);
    EXPECT_EQ(mechanism.request().adaptive.count_deviation, std::max(1.0, batch / 20));
    EXPECT_LT(mechanism.gradient_sigma(), 1.16);
  }
  c.sigma.reset();
  c.epsilon = 2;
  const privacy::Mechanism found = private_mechanism(c, setting());
  EXPECT_GE(found.request().adaptive.count_deviation, found.sigma());
}

TEST(PrivateRun, AnExpectedBatchIsCutIntoMicroBatches) {
  struct Row {
    int64_t batch_size;  // 0: not given
    std::optional<int64_t> total;
    int accumulation, world;
    double expected;
    int64_t micro_batch;
    int micro_batches;
  };
  const Row rows[] = {{4, {}, 1, 2, 8, 4, 1},
                      {4, {}, 3, 2, 24, 4, 3},
                      {4, 50, 1, 2, 50, 4, 7},
                      {0, 50, 1, 2, 50, 25, 1},
                      {0, 50, 5, 1, 50, 10, 5}};
  for (const Row& row : rows) {
    RunConfig config = training_config("llama-tiny");
    config.model.from_scratch = true;
    config.data.path = "x";
    config.privacy = choice();
    config.step.batch_size = row.batch_size;
    config.step.total_batch_size = row.total;
    config.step.accumulation = row.accumulation;
    for (int time = 0; time < 2; ++time) {  // settling twice changes nothing
      config = settled_for_training(config, row.world);
      EXPECT_EQ(expected_batch(config, row.world), row.expected);
      EXPECT_EQ(config.step.batch_size, row.micro_batch);
      EXPECT_EQ(config.step.accumulation, row.micro_batches);
    }
  }
}

}  // namespace
}  // namespace veil
