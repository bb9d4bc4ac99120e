// The private step on one process: whatever the rule, passes, strategy, checkpointing and
// accumulation, it is the micro-batch-of-1 loop.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "engine/test_run.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::PassKind;

constexpr int64_t kSamples = kPrivateGridSamples;

const std::vector<PassKind> kPlans = {PassKind::keep, PassKind::book, PassKind::two_pass};

struct Reference {
  std::vector<std::vector<double>> squared;  // [params][samples]
  std::vector<std::vector<Tensor>> grads;    // [samples][params], fp64
};

// One sample at a time, summed by hand: what DP-SGD is.
const Reference& reference(const TestCase& test) {
  static std::map<std::string, Reference> known;
  const std::string name = fmt::format("{} {}", test.model, name_of(test.task));
  Reference& found = known[name];
  if (!found.grads.empty()) return found;
  TestCase all;
  all.model = test.model;
  all.task = test.task;
  all.batch = 1;
  all.step = TestCase::all_of(at::kDouble);
  for (int64_t i = 0; i < kSamples; ++i) {
    TestRun run(all, {}, i);
    found.grads.push_back(run.executor->gradients());
  }
  for (size_t p = 0; p < found.grads[0].size(); ++p) {
    found.squared.emplace_back();
    for (int64_t i = 0; i < kSamples; ++i)
      found.squared.back().push_back(
          found.grads[static_cast<size_t>(i)][p].square().sum().item<double>());
  }
  return found;
}

double coefficient(const TestCase::Private& wish, double squared, double clip_norm) {
  const double norm = std::sqrt(squared);
  if (wish.clip == ClipFunction::automatic) return clip_norm / (norm + 0.01);
  if (wish.clip == ClipFunction::psac) return clip_norm / (norm + 0.01 / (norm + 0.01));
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

// Clipped sums of the samples by the reference.
std::vector<Tensor> clipped_sums(const TestCase& test, const ModelShape& shape) {
  const Reference& known = reference(test);
  const privacy::ClipLayers layers =
      privacy::clip_layers(shape, test.clipped->clip == ClipFunction::per_layer);
  const double clip_norm = test.clipped->clip_norm / std::sqrt(layers.count);
  std::vector<Tensor> sums;
  for (size_t p = 0; p < shape.params.size(); ++p) {
    Tensor sum;
    for (size_t i = 0; i < static_cast<size_t>(kSamples); ++i) {
      double squared = 0;
      for (size_t other = 0; other < shape.params.size(); ++other)
        squared += layers.of_param[other] == layers.of_param[p] ? known.squared[other][i] : 0;
      const Tensor part = known.grads[i][p] * coefficient(*test.clipped, squared, clip_norm);
      sum = sum.defined() ? sum + part : part;
    }
    sums.push_back(sum);
  }
  return sums;
}

// A GPU's own initial values differ in their last bits.
void start_as_on_cpu(TestRun& run, TestCase test) {
  test.device = cpu_device();
  TestRun on_cpu(test, {});
  const std::vector<Executor::StatePiece> pieces = on_cpu.executor->state();
  run.executor->restore(0, [&](int kind, int64_t first, const Tensor& out) {
    out.zero_();
    for (const Executor::StatePiece& piece : pieces) {
      if (kind < 0 && piece.first == first) out.copy_(piece.params);
    }
  });
}

void expect_clipped_sums(const TestCase& test, double allowed) {
  SCOPED_TRACE(test.name());
  TestRun run(test, {});
  if (test.device.is_cuda()) start_as_on_cpu(run, test);
  const std::vector<Tensor> mine = run.executor->gradients(),
                            expected = clipped_sums(test, run.executor->shape());
  double largest = 1e-30;
  for (const Tensor& sum : expected) largest = std::max(largest, sum.abs().max().item<double>());
  for (size_t p = 0; p < mine.size(); ++p)
    EXPECT_LE(largest_difference(mine[p], expected[p]), allowed * largest)
        << run.executor->shape().params[p].name;
}

TEST(PrivateStep, EveryPlanAndRuleIsTheMicroBatchOfOneLoop) {
  for (const TestCase& test : private_grid(at::kDouble)) expect_clipped_sums(test, 1e-10);
}

TEST(GpuPrivateStep, EveryPlanAndRuleIsTheMicroBatchOfOneLoop) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (DType dtype : {at::kDouble, at::kFloat}) {
    const std::vector<TestCase> grid = private_grid(dtype);
    for (size_t i = 0; i < grid.size(); i += dtype == at::kDouble ? 1 : 5) {
      TestCase test = grid[i];
      test.device = gpu_device(0);
      expect_clipped_sums(test, dtype == at::kDouble ? 1e-10 : 1e-5);
    }
  }
}

// With graphs, and as the CPU does it: noise, rounding of nothing, several micro-batches.
TEST(GpuPrivateStep, NoisyStepsAreTheCpus) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (PassKind pass : kPlans) {
    for (int micro_batches : {1, 3}) {
      for (OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
        for (NoiseGenerator generator : {NoiseGenerator::secure, NoiseGenerator::philox}) {
          TestCase test;
          test.model = "qwen2-tiny-tied";
          test.step.micro_batches = micro_batches;
          test.batch = kSamples / micro_batches;
          test.optimizer.kind = kind;
          test.clipped.emplace();
          test.clipped->pass = pass;
          test.clipped->noise_multiplier = 1;
          test.clipped->generator = generator;
          TestCase on_gpu = test;
          on_gpu.device = gpu_device(0);
          SCOPED_TRACE(test.name());
          TestRun cpu(test, {}), gpu(on_gpu, {});
          start_as_on_cpu(gpu, on_gpu);
          EXPECT_EQ(gpu.executor->graph_state(), "on");
          cpu.steps(3);
          gpu.steps(3);
          for (size_t p = 0; p < cpu.model.params.size(); ++p)
            EXPECT_LE(largest_difference(cpu.executor->parameter(static_cast<ParamId>(p)),
                                         gpu.executor->parameter(static_cast<ParamId>(p))),
                      1e-9);
        }
      }
    }
  }
}

// Once for backward and once for the weight gradients; between them nothing of the tape lives (the
// ledger's bytes: ExecutorTest.TheEstimatorsBytesOfPrivateSteps*).
TEST(PrivateStep, BookWithCheckpointingMakesTapesTwice) {
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    TestCase test;
    test.model = "gpt2-tiny";
    test.step.checkpointing = checkpointing;
    test.clipped.emplace();
    test.clipped->pass = PassKind::book;
    TestRun run(test, {});
    int made = 0;
    for (const Op& op : run.executor->schedule().part(Part::body))
      made += op.kind == OpKind::recompute && op.block == 1;
    EXPECT_EQ(made, checkpointing == Checkpointing::none ? 0 : 2);
  }
}

// Norms are reduced in a fixed order, without atomics, and every strategy adds in the same order.
TEST(GpuPrivateStep, FiveNoisyStepsHaveTheSameBitsTwiceAndInEveryStrategy) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (PassKind pass : kPlans) {
    std::vector<Tensor> first;
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (int round = 0; round < 2; ++round) {
        TestCase test;
        test.model = "gpt2-tiny";
        test.step = TestCase::all_of(at::kBFloat16);
        test.step.strategy = strategy;
        test.device = gpu_device(0);
        test.tokens = 64;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->noise_multiplier = 1;
        SCOPED_TRACE(test.name());
        TestRun run(test, {});
        run.steps(5);
        const std::vector<Tensor> mine = run.parameters();
        if (first.empty()) first = mine;
        for (size_t p = 0; p < mine.size(); ++p) EXPECT_TRUE(at::equal(mine[p], first[p])) << p;
      }
    }
  }
}

TEST(PrivateStep, InSinglePrecisionToo) {
  const std::vector<TestCase> grid = private_grid(at::kFloat);
  for (size_t i = 0; i < grid.size(); i += 5) expect_clipped_sums(grid[i], 1e-5);
}

TEST(PrivateStep, NormsAreTheSamplesOwn) {
  for (TestCase test : private_grid(at::kDouble)) {
    if (test.step.micro_batches > 1) continue;
    SCOPED_TRACE(test.name());
    TestRun run(test, {});
    run.executor->gradients();
    const Tensor squared = run.executor->squared_norms();
    const Reference& known = reference(test);
    for (int64_t p = 0; p < squared.size(0); ++p) {
      for (int64_t i = 0; i < kSamples; ++i) {
        const double expected = known.squared[static_cast<size_t>(p)][static_cast<size_t>(i)];
        EXPECT_NEAR(squared[p][i].item<double>(), expected, 1e-10 * std::max(1e-3, expected))
            << p << " " << i;
      }
    }
  }
}

// Invariant 9 of docs/privacy.md, by way of plain training: without noise and with nothing clipped
// the step is the one that is not private.
TEST(PrivateStep, WithoutNoiseAndClippingItIsPlainTraining) {
  for (PassKind pass : kPlans) {
    for (OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
      TestCase plain;
      plain.model = "qwen2-tiny-tied";
      plain.optimizer.kind = kind;
      TestCase test = plain;
      test.clipped.emplace();
      test.clipped->pass = pass;
      test.clipped->clip_norm = std::numeric_limits<double>::infinity();
      SCOPED_TRACE(test.name());
      TestRun one(plain, {}), other(test, {});
      one.steps(5);
      other.steps(5);
      for (size_t p = 0; p < one.model.params.size(); ++p)
        EXPECT_LE(largest_difference(one.executor->parameter(static_cast<ParamId>(p)),
                                     other.executor->parameter(static_cast<ParamId>(p))),
                  1e-10);
    }
  }
}

TEST(PrivateStep, NoiseIsTheSameForEveryPlanStrategyAndAccumulation) {
  std::vector<Tensor> first;
  for (PassKind pass : kPlans) {
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (int micro_batches : {1, 3}) {
        TestCase test;
        test.model = "gpt2-tiny";
        test.step.strategy = strategy;
        test.step.micro_batches = micro_batches;
        test.batch = kSamples / micro_batches;
        test.clipped.emplace();
        test.clipped->pass = pass;
        test.clipped->noise_multiplier = 1;
        SCOPED_TRACE(test.name());
        TestRun run(test, {});
        run.steps(3);
        const std::vector<Tensor> mine = run.parameters();
        if (first.empty()) first = mine;
        for (size_t p = 0; p < mine.size(); ++p)
          EXPECT_LE(largest_difference(mine[p], first[p]), 1e-12);
      }
    }
  }
}

// Invariants 1 and 4: the update is (sum + sigma C z) / E, z once per step with the deviation it
// should have.
TEST(PrivateStep, TheUpdateIsTheSumAndTheNoiseOverTheExpectedBatch) {
  TestCase test;
  test.model = "llama-tiny";
  test.optimizer.kind = OptimizerKind::sgd;
  test.clipped.emplace();
  test.clipped->noise_multiplier = 2;
  test.clipped->expected_batch = 40;
  TestCase quiet = test;
  quiet.clipped->noise_multiplier = 0;
  TestRun noisy(test, {}), silent(quiet, {});
  const std::vector<Tensor> sums = silent.executor->gradients();
  double squares = 0, count = 0;
  for (size_t p = 0; p < sums.size(); ++p) {
    const auto id = static_cast<ParamId>(p);
    const Tensor before = silent.executor->parameter(id);
    if (p == 0) {
      silent.executor->step(0.1);
      noisy.executor->step(0.1);
    }
    TestRun begun(quiet, {});
    EXPECT_LE(largest_difference(silent.executor->parameter(id),
                                 begun.executor->parameter(id) - sums[p] * (0.1 / 40)),
              1e-12);
    const Tensor noise =
        (noisy.executor->parameter(id) - silent.executor->parameter(id)) / (0.1 / 40);
    squares += noise.square().sum().item<double>();
    count += static_cast<double>(noise.numel());
  }
  EXPECT_NEAR(std::sqrt(squares / count), 2 * 0.05, 0.1 * 5 / std::sqrt(2 * count));
}

TEST(PrivateStep, PaddingSamplesAndEmptyBatchesCountForNothing) {
  for (const auto& [pass, model] : {std::pair{PassKind::keep, "llama-tiny"},
                                    {PassKind::book, "llama-tiny"},
                                    {PassKind::two_pass, "llama-tiny"},
                                    {PassKind::keep, "dit-tiny"},
                                    {PassKind::book, "dit-tiny"},
                                    {PassKind::two_pass, "dit-tiny"}}) {
    TestCase test;
    test.model = model;
    test.step.varying = true;
    test.batch = 2;
    test.clipped.emplace();
    test.clipped->pass = pass;
    SCOPED_TRACE(test.name());
    TestRun run(test, {});
    const Batch samples = run.samples(kSamples);
    Batch padded = samples.narrow(0, 4);
    padded.counted = empty_tensor({4}, at::kByte, cpu_device()).fill_(1);
    padded.counted.narrow(0, 3, 1).zero_();
    run.executor->load(padded);
    const std::vector<Tensor> with_padding = run.executor->gradients();
    const Executor::ClipFacts facts = run.executor->clip_facts();
    EXPECT_EQ(facts.samples, 3);
    EXPECT_EQ(facts.bad_samples, 0);
    // The same without the fourth sample, one at a time.
    TestCase single = test;
    single.batch = 1;
    TestRun alone(single, {});
    alone.executor->load(samples.narrow(0, 3));
    const std::vector<Tensor> three = alone.executor->gradients();
    for (size_t p = 0; p < three.size(); ++p)
      EXPECT_LE(largest_difference(with_padding[p], three[p]), 1e-12);
    run.executor->load({});
    for (const Tensor& sum : run.executor->gradients())
      EXPECT_EQ(sum.abs().max().item<double>(), 0);
    EXPECT_EQ(run.executor->clip_facts().samples, 0);
  }
}

TEST(PrivateStep, AnEmptyBatchStillAddsNoise) {
  TestCase test;
  test.model = "llama-tiny";
  test.step.varying = true;
  test.optimizer.kind = OptimizerKind::sgd;
  test.clipped.emplace();
  test.clipped->noise_multiplier = 1;
  TestRun run(test, {});
  const Tensor before = run.executor->parameter(0);
  run.executor->load({});
  run.executor->step(0.1);
  EXPECT_GT(largest_difference(run.executor->parameter(0), before), 1e-4);
}

// A token that one of the samples has and no other.
int64_t own_token(const Tensor& ids, int64_t sample) {
  for (int64_t t = 0; t < ids.size(1); ++t) {
    const int64_t token = ids[sample][t].item<int64_t>();
    if (ids.eq(token).sum().item<int64_t>() == ids[sample].eq(token).sum().item<int64_t>())
      return token;
  }
  return -1;
}

// Invariant 6 of docs/privacy.md, for every way in which gradients are made and summed: numbers
// that are not finite are passed over, not multiplied by 0.
TEST(PrivateStep, ASampleThatIsNotFiniteContributesNothingAndIsCounted) {
  constexpr int64_t kBad = 2;
  for (const std::string model : {"", "llama-tiny", "dit-tiny"}) {
    const bool reads_tokens = model == "llama-tiny";
    for (PassKind pass : kPlans) {
      for (const bool one_micro_batch : {true, false}) {
        TestCase test;
        test.model = model;
        test.step.varying = !one_micro_batch;
        test.batch = one_micro_batch ? kSamples : 2;
        test.optimizer.kind = OptimizerKind::sgd;
        test.clipped.emplace();
        test.clipped->pass = pass;
        SCOPED_TRACE(test.name());
        TestRun clean(test, {});
        Batch samples = clean.samples(kSamples);
        samples.counted = empty_tensor({kSamples}, at::kByte, cpu_device()).fill_(1);
        Batch without = samples;
        without.counted = samples.counted.clone();
        without.counted.narrow(0, kBad, 1).zero_();
        clean.executor->load(without);
        const std::vector<Tensor> expected = clean.executor->gradients();
        int64_t token = -1;
        if (reads_tokens) {
          token = own_token(samples.inputs, kBad);
          ASSERT_GE(token, 0);
          const Tensor table = clean.executor->parameter(0).clone();
          table[token].fill_(std::numeric_limits<double>::infinity());
          test.initial = [table](ParamId id, int64_t first, const Tensor& out) {
            if (id == 0) out.copy_(table.view({-1}).narrow(0, first, out.numel()));
            return id == 0;
          };
        } else {
          samples.inputs = samples.inputs.clone();
          samples.inputs[kBad].fill_(std::numeric_limits<double>::quiet_NaN());
        }
        TestRun run(test, {});
        run.executor->load(samples);
        const std::vector<Tensor> sums = run.executor->gradients();
        EXPECT_EQ(run.executor->clip_facts().samples, kSamples);
        EXPECT_EQ(run.executor->clip_facts().bad_samples, 1);
        for (size_t p = 0; p < sums.size(); ++p)
          EXPECT_LE(largest_difference(sums[p], expected[p]), 1e-12) << p;
        run.executor->load(samples);
        run.executor->step(0.1);
        for (size_t p = reads_tokens ? 1 : 0; p < sums.size(); ++p)
          EXPECT_TRUE(
              run.executor->parameter(static_cast<ParamId>(p)).isfinite().all().item<bool>())
              << p;
      }
    }
  }
}

}  // namespace
}  // namespace veil
