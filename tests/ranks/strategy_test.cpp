// ddp, zero2 and zero3 in every combination of settings: bit-equal to each other at the same world,
// equal to one process up to rounding.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/launch.h"
#include "engine/test_run.h"
#include "ranks/rank_harness.h"

namespace veil::strategy_test {
namespace {

// a logical batch over all ranks: 1, 2, 3 and 4 ranks with 1, 2 or 4 micro-batches divide it
constexpr int64_t kSamples = 48;

// What one process makes of the same samples, by optimizer and type; the data of a rank's run lie
// one after another in it.
std::vector<Tensor> alone(OptimizerKind kind, DType dtype) {
  static std::map<std::pair<OptimizerKind, DType>, std::vector<Tensor>> known;
  std::vector<Tensor>& found = known[{kind, dtype}];
  if (found.empty()) {
    TestCase test;
    test.step = TestCase::all_of(dtype);
    test.batch = kSamples;
    test.optimizer.kind = kind;
    TestRun run(test, {});
    run.steps(5);
    found = run.parameters();
  }
  return found;
}

// Runs that must agree in every bit: the same sums in the same order. zero2 and zero3 that reduce
// each micro-batch add the ranks first and the micro-batches second; ddp, and the others with whole
// accumulation, the other way round.
std::string sum_order(const TestCase& test) {
  const bool whole =
      test.step.strategy == Strategy::ddp || test.step.accumulate_in == AccumulateIn::whole;
  const std::string order = test.step.micro_batches == 1    ? "one"
                            : whole || test.step.world == 1 ? "whole"
                                                            : "shard";
  return fmt::format("{} {} {}", order, name_of(test.optimizer.kind),
                     dtype_name(test.step.storage));
}

class StrategyTest : public testing::Test {
 protected:
  void compare(TestCase test, std::map<std::string, std::vector<Tensor>>& firsts) {
    test.batch = kSamples / test.step.world / test.step.micro_batches;
    TestRun run(test, both_lanes());
    run.steps(5);
    const std::vector<Tensor> mine = run.parameters();
    const std::vector<Tensor> reference = alone(test.optimizer.kind, test.step.storage);
    std::vector<Tensor>& first = firsts[sum_order(test)];
    if (first.empty()) first = mine;
    for (size_t p = 0; p < mine.size(); ++p) {
      EXPECT_TRUE(at::equal(mine[p], first[p]))
          << test.name() << ": parameter " << p << " differs in its bits";
      EXPECT_LT(largest_difference(mine[p], reference[p]), 1e-10)
          << test.name() << ": parameter " << p;
    }
  }
  int world() const { return rank_info_from_environment().world; }
};

// Every pair of settings occurs: the grid thinned by a stride that shares no factor with its sides.
TEST_F(StrategyTest, EveryPairOfSettingsEqualsOneProcess) {
  std::map<std::string, std::vector<Tensor>> firsts;
  const std::vector<TestCase> grid = full_grid(world(), at::kDouble);
  for (size_t i = 0; i < grid.size(); i += 11) compare(grid[i], firsts);
}

TEST_F(StrategyTest, FullGridEqualsOneProcess) {
  std::map<std::string, std::vector<Tensor>> firsts;
  for (const TestCase& test : full_grid(world(), at::kDouble)) compare(test, firsts);
}

TEST_F(StrategyTest, TheFirstGradientsInFp32EqualOneProcess) {
  TestCase one;
  one.step = TestCase::all_of(at::kFloat);
  one.batch = kSamples;
  const std::vector<Tensor> reference = TestRun(one, {}).executor->gradients();
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    for (int micro_batches : {1, 2}) {
      for (AccumulateIn where : {AccumulateIn::shard, AccumulateIn::whole}) {
        TestCase test = one;
        test.step.strategy = strategy;
        test.step.world = world();
        test.step.micro_batches = micro_batches;
        test.step.accumulate_in = where;
        test.batch = kSamples / world() / micro_batches;
        TestRun run(test, both_lanes());
        const std::vector<Tensor> mine = run.executor->gradients();
        for (size_t p = 0; p < mine.size(); ++p) {
          const double scale = reference[p].abs().max().item<double>();
          EXPECT_LT(largest_difference(mine[p], reference[p]), 1e-6 * scale)
              << test.name() << ": parameter " << p;
        }
      }
    }
  }
}

TEST_F(StrategyTest, Bf16OnTheWireStaysNearFp32) {
  TestCase one;
  one.step = TestCase::all_of(at::kFloat);
  one.batch = kSamples;
  const std::vector<Tensor> reference = TestRun(one, {}).executor->gradients();
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    TestCase test = one;
    test.step.strategy = strategy;
    test.step.world = world();
    test.step.reduce = at::kBFloat16;
    test.batch = kSamples / world();
    TestRun run(test, both_lanes());
    const std::vector<Tensor> mine = run.executor->gradients();
    for (size_t p = 0; p < mine.size(); ++p) {
      EXPECT_LT(largest_difference(mine[p], reference[p]),
                2e-2 * reference[p].abs().max().item<double>())
          << test.name();
    }
  }
}

}  // namespace
}  // namespace veil::strategy_test
