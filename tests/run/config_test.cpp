#include "run/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace veil {
namespace {

template <typename Enum>
Enum named(const char* text) {
  Enum value{};
  EXPECT_TRUE(find_name(text, value)) << text;
  return value;
}

// Those of the FSDP tutorial of ODSC West 2024.
TEST(RunConfig, DefaultsAreTheTutorials) {
  const RunConfig options;
  EXPECT_EQ(options.model.name, "linear-stack");
  EXPECT_EQ(options.step.strategy, named<Strategy>("fsdp"));
  EXPECT_EQ(options.step.batch_size, 8192);
  EXPECT_EQ(options.model.input_size, 16384);
  EXPECT_EQ(layer_count(options, 8), 8);
  EXPECT_FALSE(options.step.cpu_offload || options.step.offload_params ||
               options.step.offload_optimizer);
  EXPECT_EQ(options.step.forward_prefetch, 0);
  EXPECT_EQ(options.step.backward_prefetch, named<BackwardPrefetch>("BACKWARD_PRE"));
  EXPECT_EQ(options.step.wrap, named<WrapPolicy>("module_wrap"));
  EXPECT_EQ(options.step.min_num_params, 100'000'000);
  EXPECT_EQ(options.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(options.optimizer.learning_rate, 0.01);
  EXPECT_EQ(options.measure.warmup, 5);
  EXPECT_EQ(options.measure.iterations, 5);
}

TEST(RunConfig, ATotalBatchIsSharedByRanksAndMicroBatches) {
  RunConfig options;
  EXPECT_EQ(rank_batch(options, 4), 8192);
  options.step.total_batch_size = 96;
  options.step.batch_size = 0;
  options.step.accumulation = 3;
  EXPECT_EQ(rank_batch(options, 4), 8);
  EXPECT_THROW(rank_batch(options, 5), UserError);
}

TEST(RunConfig, AMicroBatchAndATotalBatchDecideTheAccumulation) {
  RunConfig config;
  config.step.total_batch_size = 96;
  config.step.batch_size = 8;
  for (int round = 0; round < 2; ++round) {  // settling twice changes nothing
    settle_batch(config, 3);
    EXPECT_EQ(config.step.batch_size, 8);
    EXPECT_EQ(config.step.accumulation, 4);
  }
  EXPECT_THROW(settle_batch(config, 6), UserError) << "an accumulation that contradicts";
  config.step.accumulation = 1;
  settle_batch(config, 6);
  EXPECT_EQ(config.step.accumulation, 2);
  config.step.accumulation = 1;
  EXPECT_THROW(settle_batch(config, 5), UserError);
}

TEST(RunConfig, TheStepTakesWhatTheConfigurationSays) {
  RunConfig options;
  options.step.cpu_offload = true;
  options.step.accumulation = 4;
  options.step.compute = Precision::bf16;
  const StepOptions step = step_options(options, 8, /*on_gpu=*/true);
  EXPECT_EQ(step.world, 8);
  EXPECT_TRUE(step.offload_params);
  EXPECT_TRUE(step.offload_optimizer);
  EXPECT_EQ(step.micro_batches, 4);
  EXPECT_EQ(step.compute, at::kBFloat16);
  EXPECT_EQ(step.storage, at::kFloat);
  EXPECT_EQ(step.min_params, 100'000'000);
}

TEST(RunConfig, ContradictionsAreRefused) {
  RunConfig options;
  options.placement.simulate_rank = 1;
  EXPECT_THROW(check_config(options), UserError);
  options.placement.simulate_world = 2;
  EXPECT_NO_THROW(check_config(options));
  options.placement.simulate_rank = 2;
  EXPECT_THROW(check_config(options), UserError);
}

// What no kernel adds ended in an internal error after the run's folder was made.
TEST(RunConfig, TypesOfGradientsThatNobodyAddsAreRefused) {
  RunConfig config;
  config.model.name = "llama-tiny";
  const auto refused = [&]() -> std::string {
    try {
      check_config(config);
    } catch (const UserError& error) {
      return error.field();
    }
    return "";
  };
  for (const auto& [compute, reduce, field] : {std::tuple{Precision::fp32, Precision::fp32, ""},
                                               {Precision::bf16, Precision::fp32, ""},
                                               {Precision::bf16, Precision::bf16, ""},
                                               {Precision::fp64, Precision::fp64, ""},
                                               {Precision::fp64, Precision::fp32, "reduce"},
                                               {Precision::fp32, Precision::bf16, "reduce"},
                                               {Precision::fp32, Precision::fp64, "reduce"},
                                               {Precision::bf16, Precision::fp16, "reduce"}}) {
    SCOPED_TRACE(testing::Message() << name_of(compute) << ", reduce " << name_of(reduce));
    config.step.compute = compute;
    config.step.reduce = reduce;
    config.step.storage = compute == Precision::fp64 ? Precision::fp64 : Precision::fp32;
    EXPECT_EQ(refused(), field);
  }
  config.step.compute = Precision::fp64;
  config.step.reduce = Precision::fp32;
  config.privacy.method.mode = Mode::ghost;  // a private step chooses its own types
  EXPECT_EQ(refused(), "");
  config.privacy.method.mode = Mode::no_dp;
  config.model.name = "linear-stack";  // has no table
  EXPECT_EQ(refused(), "");
  config.model.name = "llama-tiny";
  config.step.compute = config.step.reduce = Precision::fp32;
  config.step.storage = Precision::fp64;
  EXPECT_EQ(refused(), "");
  config.step.accumulation = 2;
  EXPECT_EQ(refused(), "storage");
}

TEST(RunConfig, FoldersOfDifferentConfigurationsDiffer) {
  RunConfig plain, offloaded, accumulated;
  offloaded.step.cpu_offload = true;
  accumulated.step.accumulation = 2;
  EXPECT_EQ(configuration_name(plain, 8), "zero3_w8_bs8192_in16384_l8_bwd-pre_wrap-module");
  EXPECT_NE(configuration_name(plain, 8), configuration_name(offloaded, 8));
  EXPECT_NE(configuration_name(plain, 8), configuration_name(accumulated, 8));
  EXPECT_NE(configuration_name(plain, 8), configuration_name(plain, 4));
}

TEST(RunConfig, FoldersOfPrivateStepsNameModePartsImageAndAttention) {
  RunConfig base;
  base.model.name = "dit-s/8";
  std::vector<RunConfig> all(7, base);
  all[1].privacy.method.mode = Mode::ghost;
  all[2].privacy.method.mode = Mode::flash;
  all[3].privacy.method = {.mode = Mode::flash, .tile = 64};
  all[4].privacy.method = {.mode = Mode::automatic, .pass = privacy::PassKind::book};
  all[5].model.diffusion.image_size = 128;
  all[6].model.attention = AttentionKind::math;
  std::set<std::string> names;
  for (const RunConfig& config : all) names.insert(configuration_name(config, 1));
  EXPECT_EQ(names.size(), all.size());
  EXPECT_THAT(configuration_name(all[2], 1), ::testing::HasSubstr("_flash_"));
}

}  // namespace
}  // namespace veil
