#include "run/defaults.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "run/train_config.h"

namespace veil {
namespace {

RunConfig resolved(RunConfig config, const std::string& model, const std::vector<UsualValue>& table,
                   const std::vector<std::string>& given = {}) {
  config.model.name = model;
  config.placement.device = DeviceKind::cpu;
  use_defaults(config, model_source(config), table, [&](const char* option) {
    return std::find(given.begin(), given.end(), option) != given.end();
  });
  return config;
}

TEST(Defaults, OfTrainingFollowModelOptimizerAndPrivacy) {
  RunConfig plain, with_epsilon, with_sgd;
  with_epsilon.privacy.epsilon = 8;
  with_sgd = with_epsilon;
  with_sgd.optimizer.kind = OptimizerKind::sgd;
  const auto& table = training_defaults();
  EXPECT_EQ(resolved(plain, "llama-tiny", table).optimizer.learning_rate, 1e-3);
  EXPECT_EQ(resolved(plain, "dit-tiny", table).optimizer.learning_rate, 1e-4);
  EXPECT_EQ(resolved(with_epsilon, "llama-tiny", table).optimizer.learning_rate, 2e-3);
  EXPECT_EQ(resolved(with_sgd, "llama-tiny", table, {"optimizer"}).optimizer.learning_rate, 0.5);
  EXPECT_EQ(resolved(plain, "llama-tiny", table).step.total_batch_size, std::nullopt);
  EXPECT_EQ(resolved(with_epsilon, "llama-tiny", table).step.total_batch_size, 256);
  EXPECT_EQ(resolved(with_epsilon, "llama-tiny", table, {"batch-size"}).step.total_batch_size,
            std::nullopt);
  EXPECT_EQ(resolved(plain, "dit-tiny", table).data.path, kShapes);
}

TEST(Defaults, WhatIsGivenStays) {
  RunConfig config;
  config.optimizer.learning_rate = 7;
  EXPECT_EQ(resolved(config, "llama-tiny", training_defaults(), {"learning-rate"})
                .optimizer.learning_rate,
            7);
}

TEST(Defaults, AConditionSaysInWordsWhenItHolds) {
  EXPECT_TRUE(When{}.always());
  EXPECT_EQ(When{}.words(), "");
  EXPECT_EQ((When{.is_private = true, .sgd = true}.words()), "private, sgd");
  EXPECT_EQ((When{.on_gpu = true}.words()), "on a GPU");
  EXPECT_FALSE((When{.on_gpu = true}.always()));
}

TEST(Defaults, OfAGpuAreBf16) {
  RunConfig config;
  config.model.name = "llama-tiny";
  config.placement.device = DeviceKind::gpu;  // nothing is run
  const ModelSource source = model_source(config);
  const auto nothing = [](const char*) { return false; };
  RunConfig training = config;
  use_defaults(training, source, training_defaults(), nothing);
  EXPECT_EQ(training.step.compute, Precision::bf16);
  config.placement.device = DeviceKind::cpu;
  use_defaults(config, source, training_defaults(), nothing);
  EXPECT_EQ(config.step.compute, Precision::fp32);
}

TEST(Defaults, AProgramsConfigurationCanSetStepsWithoutUnsettingEpochs) {
  RunConfig config = training_config("llama-tiny");
  EXPECT_FALSE(config.training.epochs);
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::adamw);
  config.data.path = "texts";
  EXPECT_EQ(settled_for_training(config, 1).training.epochs, kUsualEpochs);
  config.training.steps = 3;
  EXPECT_FALSE(settled_for_training(config, 1).training.epochs);
}

}  // namespace
}  // namespace veil
