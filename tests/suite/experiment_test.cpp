#include "suite/experiment.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace veil {
namespace {

template <typename Enum>
Enum named(const char* text) {
  Enum value{};
  EXPECT_TRUE(find_name(text, value)) << text;
  return value;
}

TEST(Experiment, DefaultsAreTheSeeds) {
  const ExperimentOptions options;
  EXPECT_EQ(options.model, "linear-stack");
  EXPECT_EQ(options.strategy, named<Strategy>("fsdp"));
  EXPECT_EQ(options.batch_size, 8192);
  EXPECT_EQ(options.input_size, 16384);
  EXPECT_EQ(layer_count(options, 8), 8);
  EXPECT_FALSE(options.cpu_offload || options.offload_params || options.offload_optimizer);
  EXPECT_EQ(options.forward_prefetch, 0);
  EXPECT_EQ(options.backward_prefetch, named<BackwardPrefetch>("BACKWARD_PRE"));
  EXPECT_EQ(options.wrap, named<WrapPolicy>("module_wrap"));
  EXPECT_EQ(options.min_num_params, 100'000'000);
  EXPECT_EQ(options.optimizer, OptimizerKind::sgd);
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.warmup, 5);
  EXPECT_EQ(options.iterations, 5);
}

TEST(Experiment, ATotalBatchIsSharedByRanksAndMicroBatches) {
  ExperimentOptions options;
  EXPECT_EQ(rank_batch(options, 4), 8192);
  options.total_batch_size = 96;
  options.accumulation = 3;
  EXPECT_EQ(rank_batch(options, 4), 8);
  EXPECT_THROW(rank_batch(options, 5), UserError);
}

TEST(Experiment, TheStepTakesWhatTheExperimentSays) {
  ExperimentOptions options;
  options.cpu_offload = true;
  options.accumulation = 4;
  options.compute = Precision::bf16;
  const StepOptions step = step_options(options, 8, /*on_gpu=*/true);
  EXPECT_EQ(step.world, 8);
  EXPECT_TRUE(step.offload_params);
  EXPECT_TRUE(step.offload_optimizer);
  EXPECT_EQ(step.micro_batches, 4);
  EXPECT_EQ(step.compute, at::kBFloat16);
  EXPECT_EQ(step.storage, at::kFloat);
  EXPECT_EQ(step.min_params, 100'000'000);
}

TEST(Experiment, ContradictionsAreRefused) {
  ExperimentOptions options;
  options.simulate_rank = 1;
  EXPECT_THROW(check_options(options), UserError);
  options.simulate_world = 2;
  EXPECT_NO_THROW(check_options(options));
  options.simulate_rank = 2;
  EXPECT_THROW(check_options(options), UserError);
}

TEST(Experiment, FoldersOfDifferentConfigurationsDiffer) {
  ExperimentOptions plain, offloaded, accumulated;
  offloaded.cpu_offload = true;
  accumulated.accumulation = 2;
  EXPECT_EQ(configuration_name(plain, 8), "zero3_w8_bs8192_in16384_l8_bwd-pre_wrap-module");
  EXPECT_NE(configuration_name(plain, 8), configuration_name(offloaded, 8));
  EXPECT_NE(configuration_name(plain, 8), configuration_name(accumulated, 8));
  EXPECT_NE(configuration_name(plain, 8), configuration_name(plain, 4));
}

}  // namespace
}  // namespace veil
