// Language and diffusion models under every strategy: ten AdamW steps equal one process's, whatever
// the world, checkpointing, accumulation and the pieces of the logits.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/launch.h"
#include "engine/test_run.h"
#include "ranks/rank_harness.h"

namespace veil::language_test {
namespace {

constexpr int64_t kSamples = 24;  // of a logical batch over all ranks
constexpr int kSteps = 10;

std::vector<Tensor> trained(const TestCase& test, Ranks ranks) {
  TestRun run(test, std::move(ranks));
  run.steps(kSteps);
  return run.parameters();
}

// One process, one micro-batch, nothing made twice.
std::vector<Tensor> alone(const TestCase& test) {
  static std::map<std::string, std::vector<Tensor>> known;
  TestCase one;
  one.model = test.model;
  one.task = test.task;
  one.max_grad_norm = test.max_grad_norm;
  one.step = TestCase::all_of(at::kDouble);
  one.optimizer = test.optimizer;
  one.batch = kSamples;
  std::vector<Tensor>& found = known[one.name()];
  if (found.empty()) found = trained(one, {});
  return found;
}

void expect_equals_one_process(TestCase test) {
  test.batch = kSamples / test.step.world / test.step.micro_batches;
  const std::vector<Tensor> mine = trained(test, both_lanes()), reference = alone(test);
  for (size_t p = 0; p < mine.size(); ++p)
    EXPECT_LT(largest_difference(mine[p], reference[p]), 1e-9)
        << test.name() << ": parameter " << p;
}

// A stride under six meets every model with every strategy.
TEST(LanguageRanks, TenStepsEqualOneProcess) {
  const std::vector<TestCase> grid = language_grid(rank_info_from_environment().world, at::kDouble);
  for (size_t i = 0; i < grid.size(); i += 5) expect_equals_one_process(grid[i]);
}

TEST(LanguageRanks, TenStepsOfTheFullGridEqualOneProcess) {
  if (rank_info_from_environment().world != 2) GTEST_SKIP() << "two ranks show it";
  for (const TestCase& test : language_grid(2, at::kDouble)) expect_equals_one_process(test);
}

// Every setting there is at two ranks, if it is quick.
TEST(DiffusionRanks, TenStepsEqualOneProcess) {
  const int world = rank_info_from_environment().world;
  const std::vector<TestCase> grid = diffusion_grid(world, at::kDouble);
  for (size_t i = 0; i < grid.size(); i += world == 2 ? 1 : 2) expect_equals_one_process(grid[i]);
}

TEST(LanguageRanks, ClassifiersAndClippedGradientsEqualOneProcess) {
  std::vector<TestCase> grid = language_grid(rank_info_from_environment().world, at::kDouble);
  for (size_t i = 0; i < grid.size(); i += 11) {
    const bool encoder = grid[i].model.starts_with("roberta");
    grid[i].task = i % 2 && !encoder ? Task::causal_lm : Task::sequence_classification;
    grid[i].max_grad_norm = 0.05;  // below the norms that occur
    expect_equals_one_process(grid[i]);
  }
}

TEST(LanguageRanks, CheckpointingChangesNoBit) {
  for (const auto& [strategy, model] : {std::pair{Strategy::ddp, "qwen2-tiny-tied"},
                                        {Strategy::zero3, "qwen2-tiny-tied"},
                                        {Strategy::zero3, "dit-tiny"}}) {
    std::vector<Tensor> first;
    for (Checkpointing checkpointing :
         {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
      TestCase test;
      test.model = model;
      test.step = TestCase::all_of(at::kFloat);
      test.step.strategy = strategy;
      test.step.world = rank_info_from_environment().world;
      test.step.checkpointing = checkpointing;
      test.optimizer.kind = OptimizerKind::adamw;
      test.batch = kSamples / test.step.world;
      const std::vector<Tensor> mine = trained(test, both_lanes());
      if (first.empty()) first = mine;
      for (size_t p = 0; p < mine.size(); ++p)
        EXPECT_TRUE(at::equal(mine[p], first[p]))
            << test.name() << ": parameter " << p << " differs in its bits";
    }
  }
}

}  // namespace
}  // namespace veil::language_test
