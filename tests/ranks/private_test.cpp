// The private step over ranks is the one of a single process: norms stay a rank's own, clipped sums
// and noise are the same for every world and strategy.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/launch.h"
#include "engine/test_private_golden.h"
#include "engine/test_run.h"
#include "engine/test_sensitivity.h"
#include "ranks/rank_harness.h"
#include "run/ranks.h"

namespace veil::private_test {
namespace {

using privacy::NormRule;
using privacy::PassKind;

constexpr int64_t kSamples = 12;  // of a logical batch over all ranks: 1 to 4 ranks divide it

int world() {
  return rank_info_from_environment().world;
}

struct Plan {
  PassKind pass;
  Exchange exchange = Exchange::automatic;
};
TestCase private_case(const std::string& model, Strategy strategy, Plan plan) {
  const PassKind pass = plan.pass;
  TestCase test;
  test.model = model;
  test.step.strategy = strategy;
  test.step.world = world();
  test.step.exchange = plan.exchange;
  test.step.min_params = 3000;
  test.batch = kSamples / world();
  test.clipped.emplace();
  test.clipped->pass = pass;
  test.clipped->rule = pass == PassKind::book ? NormRule::flash : NormRule::ghost;
  return test;
}

TestCase on_one_process(TestCase test) {
  test.step.world = 1;
  test.step.strategy = Strategy::ddp;
  test.step.micro_batches = 1;
  test.batch = kSamples;
  return test;
}

// Sums that nobody exchanged would be right as well.
bool exchanges_as_planned(const TestRun& run, Strategy strategy, Plan plan) {
  const bool planned = plan.exchange == Exchange::kept && strategy != Strategy::ddp && world() > 1;
  return run.executor->schedule().exchanges() == planned;
}

const std::vector<Strategy> kStrategies = {Strategy::ddp, Strategy::zero2, Strategy::zero3};
const std::vector<Plan> kPlans = {{PassKind::keep, Exchange::kept},
                                  {PassKind::keep, Exchange::sums},
                                  {PassKind::book},
                                  {PassKind::two_pass}};

// Invariant 3 of docs/privacy.md: were norms reduced over ranks, each would hold its peers' samples
// as well.
TEST(PrivateRanks, NormsAreTheRanksOwnAndClippedSumsAreOneProcesss) {
  for (const char* model : {"", "qwen2-tiny-tied", "gpt2-tiny"}) {
    TestRun alone(on_one_process(private_case(model, Strategy::ddp, {PassKind::two_pass})), {});
    const std::vector<Tensor> sums = alone.executor->gradients();
    const Tensor norms = alone.executor->squared_norms(),
                 coefficients = alone.executor->coefficients();
    for (const Strategy strategy : kStrategies) {
      for (const Plan plan : kPlans) {
        TestCase test = private_case(model, strategy, plan);
        SCOPED_TRACE(test.name());
        TestRun run(test, both_lanes());
        EXPECT_TRUE(exchanges_as_planned(run, strategy, plan));
        const int rank = rank_info_from_environment().rank;
        const std::vector<Tensor> mine = run.executor->gradients();
        const Tensor squared = run.executor->squared_norms();
        const Tensor expected = norms.narrow(1, rank * test.batch, test.batch);
        EXPECT_LE(largest_difference(squared, expected), 1e-10 * expected.max().item<double>());
        EXPECT_LE(largest_difference(run.executor->coefficients(),
                                     coefficients.narrow(1, rank * test.batch, test.batch)),
                  1e-10);
        for (size_t p = 0; p < mine.size(); ++p)
          EXPECT_LE(largest_difference(mine[p], sums[p]), 1e-10) << p;
      }
    }
  }
}

// Invariant 4 of docs/privacy.md, by parameters that start at 0 and batches without samples: what
// is left is noise alone, and it has the same bits in every world.
TEST(PrivateRanks, NoiseHasTheSameBitsInEveryWorldAndStrategy) {
  for (const DType dtype : {at::kDouble, at::kFloat}) {
    auto noise = [&](TestCase test, Ranks ranks) {
      test.step.storage = test.step.compute = test.step.reduce = dtype;
      test.step.varying = true;
      test.optimizer.kind = OptimizerKind::sgd;
      test.clipped->noise_multiplier = 1.5;
      test.initial = [](ParamId, int64_t, const Tensor& out) {
        out.zero_();
        return true;
      };
      TestRun run(test, std::move(ranks));
      run.executor->load({});
      run.steps(3);
      return run.parameters();
    };
    const std::vector<Tensor> alone =
        noise(on_one_process(private_case("gpt2-tiny", Strategy::ddp, {PassKind::book})), {});
    for (const Strategy strategy : kStrategies) {
      for (const Plan plan : kPlans) {
        const std::vector<Tensor> mine =
            noise(private_case("gpt2-tiny", strategy, plan), both_lanes());
        for (size_t p = 0; p < mine.size(); ++p) {
          EXPECT_GT(mine[p].abs().max().item<double>(), 0) << p;
          EXPECT_TRUE(at::equal(mine[p], alone[p]))
              << name_of(strategy) << " " << name_of(plan.pass) << " parameter " << p;
        }
      }
    }
  }
}

// Five steps; and if there is a `reference`, they are its parameters to rounding.
void expect_same_bits_in_every_strategy(TestCase test, const std::vector<Tensor>& reference) {
  std::vector<Tensor> first;
  for (const Strategy strategy : kStrategies) {
    test.step.strategy = strategy;
    SCOPED_TRACE(test.name());
    TestRun run(test, both_lanes());
    run.steps(5);
    const std::vector<Tensor> mine = run.parameters();
    if (first.empty()) first = mine;
    for (size_t p = 0; p < mine.size(); ++p) {
      EXPECT_TRUE(at::equal(mine[p], first[p])) << p;
      if (!reference.empty()) {
        EXPECT_LE(largest_difference(mine[p], reference[p]), 1e-9) << p;
      }
    }
  }
}

TEST(PrivateRanks, FiveNoisyStepsAreBitEqualForEveryStrategyAndOneProcesssToRounding) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
    for (const Plan plan : kPlans) {
      TestCase test = private_case("llama-tiny-tied", Strategy::ddp, plan);
      test.optimizer.kind = kind;
      test.clipped->noise_multiplier = 0.7;
      TestRun alone(on_one_process(test), {});
      alone.steps(5);
      const std::vector<Tensor> reference = alone.parameters();
      expect_same_bits_in_every_strategy(test, reference);
    }
  }
}

// Slots of frozen parameters lie across the shards' borders; what is trained is one process's, and
// bf16 moments are rounded alike in every world.
TEST(PrivateRanks, FrozenParametersKeepTheirBitsAndTheOthersAreOneProcesss) {
  for (const Plan plan : kPlans) {
    for (const char* model : {"gpt2-tiny", "dit-tiny"}) {
      TestCase test = private_case(model, Strategy::ddp, plan);
      test.frozen = {"*.0.*", "*bias"};
      test.optimizer.kind = OptimizerKind::adamw;
      test.optimizer.weight_decay = 0.1;
      test.clipped->noise_multiplier = 0.7;
      TestRun alone(on_one_process(test), {});
      const std::vector<Tensor> before = alone.parameters();
      alone.steps(3);
      const std::vector<Tensor> reference = alone.parameters();
      for (const Strategy strategy : kStrategies) {
        test.step.strategy = strategy;
        SCOPED_TRACE(test.name());
        TestRun run(test, both_lanes());
        run.steps(3);
        const std::vector<Tensor> mine = run.parameters();
        for (size_t p = 0; p < mine.size(); ++p) {
          const ParamShape& param = run.model.params[p];
          EXPECT_EQ(at::equal(mine[p], before[p]), param.frozen) << param.name;
          EXPECT_LE(largest_difference(mine[p], reference[p]), 1e-9) << param.name;
        }
      }
    }
  }
}

TEST(PrivateRanks, MomentsInBf16AreRoundedAlikeInEveryStrategy) {
  TestCase test = private_case("llama-tiny-tied", Strategy::ddp, {PassKind::book});
  test.step.storage = test.step.compute = test.step.reduce = at::kFloat;
  test.step.moments = at::kBFloat16;
  test.optimizer.kind = OptimizerKind::adamw;
  test.clipped->noise_multiplier = 0.7;
  expect_same_bits_in_every_strategy(test, {});
}

// Noise comes once per logical batch, however many micro-batches and ranks share it.
TEST(PrivateRanks, SeveralMicroBatchesShareOneDrawOfNoise) {
  for (const Strategy strategy : kStrategies) {
    for (const Plan plan : kPlans) {
      TestCase test = private_case("llama-tiny", strategy, plan);
      test.step.micro_batches = world() == 3 ? 2 : 3;  // that share the samples evenly
      test.batch = kSamples / world() / test.step.micro_batches;
      test.clipped->noise_multiplier = 0.7;
      test.optimizer.kind = OptimizerKind::sgd;
      SCOPED_TRACE(test.name());
      TestRun alone(on_one_process(test), {}), run(test, both_lanes());
      alone.steps(3);
      run.steps(3);
      const std::vector<Tensor> mine = run.parameters(), reference = alone.parameters();
      for (size_t p = 0; p < mine.size(); ++p)
        EXPECT_LE(largest_difference(mine[p], reference[p]), 1e-10) << p;
    }
  }
}

// Reductions and updates under the next step's forward (StepOptions::defer_update), and kept
// gradients of several micro-batches summed at once.
TEST(PrivateRanks, ADeferredUpdateChangesNoBit) {
  for (const Strategy strategy : kStrategies) {
    for (const bool several : {false, true}) {
      for (const PassKind pass : {PassKind::keep, PassKind::book}) {
        if (!several && pass != PassKind::keep) continue;
        TestCase test = private_case("llama-tiny", strategy, {pass, Exchange::sums});
        test.step.forward_prefetch = 1;
        if (several) {
          test.step.micro_batches = world() == 3 ? 2 : 3;
          test.step.accumulate_in = AccumulateIn::whole;
          test.batch = kSamples / world() / test.step.micro_batches;
        }
        test.clipped->noise_multiplier = 0.7;
        test.optimizer.kind = OptimizerKind::adamw;
        SCOPED_TRACE(test.name());
        TestCase later = test;
        later.step.defer_update = true;
        if (several && pass == PassKind::keep) later.clipped->combine_every = 2;
        TestRun at_once(test, both_lanes()), deferred(later, both_lanes());
        EXPECT_EQ(deferred.executor->schedule().defers_update, world() > 1);
        at_once.steps(4);
        deferred.steps(4);
        const std::vector<Tensor> mine = deferred.parameters(), reference = at_once.parameters();
        for (size_t p = 0; p < mine.size(); ++p) EXPECT_TRUE(at::equal(mine[p], reference[p])) << p;
      }
    }
  }
}

// Ranks may price methods differently; they take the first one's, all of it.
TEST(PrivateRanks, EveryRankTakesTheMethodOfTheFirst) {
  const int rank = rank_info_from_environment().rank;
  privacy::ClipMethod first;
  first.pass = PassKind::keep;
  first.rules = {privacy::NormRule::flash, privacy::NormRule::ghost};
  first.tile = 77;
  first.layers = true;
  first.combine_every = 3;
  privacy::ClipMethod other;
  other.rules = {privacy::NormRule::ghost, privacy::NormRule::ghost};
  Ranks ranks = both_lanes();
  const privacy::ClipMethod taken =
      method_of_rank_0(rank == 0 ? first : other, cpu_device(), ranks.reduce.get());
  EXPECT_EQ(taken.pass, first.pass);
  EXPECT_EQ(taken.rules, first.rules);
  EXPECT_EQ(taken.tile, first.tile);
  EXPECT_EQ(taken.layers, first.layers);
  EXPECT_EQ(taken.combine_every, first.combine_every);
}

TEST(PrivateRanks, OneSampleMovesTheClippedSumByCAtMost) {
  const std::vector<TestCase> cases = sensitivity_cases(world());
  int exchanged = 0;
  for (size_t i = 0; i < cases.size(); i += 5) {  // keep, book and two-pass, in both types
    TestCase test = cases[i];
    const auto expect_at_most_c = [&] {
      SCOPED_TRACE(test.name());
      const SensitivityFound found = one_sample_less(test, both_lanes());
      EXPECT_LE(found.moved, test.clipped->clip_norm * (1 + stated_slack(test.step.compute)));
      return found.exchanged;
    };
    expect_at_most_c();
    if (test.clipped->pass != PassKind::keep) continue;
    test.step.strategy = Strategy::zero3;
    test.step.exchange = Exchange::kept;
    test.clipped->combine_every = 1;
    exchanged += expect_at_most_c();
  }
  EXPECT_GT(exchanged, world() > 1 ? 1 : -1);
}

TEST(PrivateRanks, EveryGoldenModelIsExactUnderEveryStrategy) {
  for (const PrivateGolden& golden : private_goldens()) {
    size_t turns = 0;
    for (const DType dtype : {at::kDouble, at::kFloat}) {
      for (const Strategy strategy : kStrategies) {
        for (const PassKind pass :
             {PassKind::keep, PassKind::book, PassKind::two_pass, PassKind::per_layer}) {
          const size_t turn = turns++;
          if (dtype == at::kFloat && turn % 5 != 0) continue;  // one process has them all
          const GoldenSetting setting{.pass = pass,
                                      .rule = static_cast<NormRule>(turn % 3),
                                      .strategy = strategy,
                                      .dtype = dtype,
                                      .single = turn % 5 == 4,
                                      .exchange = turn % 2 ? Exchange::sums : Exchange::kept};
          expect_private_golden(golden, setting, dtype == at::kDouble ? 1e-9 : golden.fp32_allowed,
                                world(), both_lanes());
        }
      }
    }
  }
}

}  // namespace
}  // namespace veil::private_test
