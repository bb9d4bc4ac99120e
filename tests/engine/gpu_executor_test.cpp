// What a GPU run of the executor must show. Every test skips without a GPU.
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/executor.h"
#include "engine/test_run.h"
#include "estimate/estimator.h"
#include "models/family.h"

namespace veil {
namespace {

class GpuExecutor : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    memory::install();
    gpu_ = gpu_device(0);
  }
  TestCase on_gpu(DType dtype) const {
    TestCase test;
    test.step = TestCase::all_of(dtype);
    test.device = gpu_;
    return test;
  }
  // Strategy x micro-batches x offload x checkpointing x simulated world.
  std::vector<TestCase> grid(DType dtype) const {
    std::vector<TestCase> cases;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (const int micro_batches : {1, 2}) {
        for (const bool offload : {false, true}) {
          for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
            for (const int world : {1, 3}) {
              TestCase test = on_gpu(dtype);
              test.step.strategy = strategy;
              test.step.micro_batches = micro_batches;
              test.step.offload_params = test.step.offload_optimizer = offload;
              test.step.checkpointing = checkpointing;
              test.step.world = world;
              test.optimizer.kind = OptimizerKind::adamw;
              cases.push_back(test);
            }
          }
        }
      }
    }
    return cases;
  }
  Device gpu_ = cpu_device();
};

void expect_graph_changes_no_bit(TestCase test) {
  SCOPED_TRACE(test.name());
  std::vector<Tensor> start, ends[2];
  double losses[2];
  for (const bool graph : {false, true}) {
    test.graph = graph ? GraphMode::on : GraphMode::off;
    TestRun run(test, simulated_ranks(test));
    ASSERT_EQ(run.executor->graph_state(), graph ? "on" : "off: requested");
    const std::vector<Tensor> before = run.parameters();
    if (graph) {
      for (size_t p = 0; p < before.size(); ++p)
        EXPECT_TRUE(at::equal(before[p], start[p])) << "capturing changed parameter " << p;
    }
    start = before;
    run.steps(5);
    ends[graph] = run.parameters();
    losses[graph] = run.executor->loss_sum();
  }
  EXPECT_EQ(losses[0], losses[1]);
  for (size_t p = 0; p < start.size(); ++p) {
    EXPECT_TRUE(at::isfinite(ends[0][p]).all().item<bool>()) << "parameter " << p;
    // What a simulated peer owns gets no gradient here: biases that start at 0 then stay there.
    const bool may_stay = test.step.world > 1 && !start[p].any().item<bool>();
    EXPECT_TRUE(may_stay || !at::equal(start[p], ends[0][p]))
        << "parameter " << p << " was not trained";
    EXPECT_TRUE(at::equal(ends[0][p], ends[1][p]))
        << "parameter " << p << " differs by " << largest_difference(ends[0][p], ends[1][p]);
  }
}

TEST_F(GpuExecutor, AGraphChangesNoBit) {
  for (const TestCase& test : grid(at::kFloat)) expect_graph_changes_no_bit(test);
}

TEST_F(GpuExecutor, AGraphChangesNoBitInMixedTypes) {
  for (TestCase test : grid(at::kFloat)) {
    test.step.compute = at::kBFloat16;
    expect_graph_changes_no_bit(test);
    test.step.storage = test.step.reduce = at::kBFloat16;
    expect_graph_changes_no_bit(test);
  }
}

TEST_F(GpuExecutor, AGraphChangesNoBitForAnyPrefetchOrWrap) {
  for (const int forward : {0, 1, 2}) {
    for (const BackwardPrefetch backward :
         {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none}) {
      for (const WrapPolicy wrap : {WrapPolicy::module, WrapPolicy::size, WrapPolicy::none}) {
        for (const bool offload : {false, true}) {
          TestCase test = on_gpu(at::kFloat);
          test.step.world = 3;
          test.step.forward_prefetch = forward;
          test.step.backward_prefetch = backward;
          test.step.wrap = wrap;
          test.step.offload_params = test.step.offload_optimizer = offload;
          expect_graph_changes_no_bit(test);
        }
      }
    }
  }
}

// Language models: attention, norms, rope, cross-entropy and the embedding's gradient inside a
// graph, whole and in pieces.
TEST_F(GpuExecutor, AGraphChangesNoBitOfLanguageModels) {
  for (const int world : {1, 3}) {
    const std::vector<TestCase> cases = language_grid(world, at::kFloat);
    for (size_t i = 0; i < cases.size(); i += 4) {
      TestCase test = cases[i];
      test.device = gpu_;
      if (i % 8 == 0) test.step.compute = at::kBFloat16;
      if (i % 12 == 0) test.max_grad_norm = 0.1;
      if (i % 20 == 0) test.task = Task::sequence_classification;
      expect_graph_changes_no_bit(test);
    }
  }
}

// Initial values are made in fp32 on the device, whose logarithm has other last bits; everything
// behind them is fp64. (Equal weights are held to 1e-10 by GpuLanguageGolden.)
TEST_F(GpuExecutor, LanguageModelsTrainAsOnTheCpu) {
  const std::vector<TestCase> cases = language_grid(1, at::kDouble);
  for (size_t i = 0; i < cases.size(); i += 5) {
    TestCase test = cases[i];
    test.max_grad_norm = 0.1;
    TestRun cpu(test, {});
    test.device = gpu_;
    TestRun gpu(test, {});
    cpu.steps(5);
    gpu.steps(5);
    const std::vector<Tensor> a = cpu.parameters(), b = gpu.parameters();
    for (size_t p = 0; p < a.size(); ++p)
      EXPECT_LT(largest_difference(a[p], b[p]), 2e-6) << test.name() << ": parameter " << p;
  }
}

TEST_F(GpuExecutor, TheEstimateOfALanguageModelIsWithinOnePercent) {
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    LanguageConfig config = preset_config("qwen2.5-0.5b").value();
    config.layers = 12;
    const Model model = language_model(config, {.tokens = 1024});
    // What earlier executors of this process left: a library's workspace for each of their streams.
    const int64_t before = memory::current(Space::device).total();
    ExecutorOptions options;
    options.step.compute = at::kBFloat16;
    options.step.checkpointing = checkpointing;
    options.optimizer.kind = OptimizerKind::adamw;
    options.watch_memory = true;
    Batch data;
    {
      CategoryScope scope(Category::data);
      data.inputs = at::zeros({8, 1024}, at::TensorOptions(at::kLong).device(gpu_));
      data.targets = data.inputs.clone();
    }
    Executor executor(model, 8, options, gpu_, std::move(data), {});
    executor.prepare();
    memory::reset_peak(Space::device);
    executor.step(1e-5);
    executor.wait();
    const auto estimated =
        static_cast<double>(estimate_memory(executor.schedule()).peak(Space::device).total());
    const auto measured = static_cast<double>(memory::peak(Space::device).total() - before);
    EXPECT_NEAR(measured / estimated, 1.0, 0.01)
        << name_of(checkpointing) << " " << measured << " " << estimated;
  }
}

// The same, but with work long enough for lanes to run side by side: a missing wait would show
// here.
TEST_F(GpuExecutor, AGraphChangesNoBitWhereLanesOverlap) {
  for (TestCase test : grid(at::kFloat)) {
    test.width = 1024;
    test.batch = 256;
    test.step.forward_prefetch = 1;
    expect_graph_changes_no_bit(test);
  }
}

TEST_F(GpuExecutor, TheGpuTrainsAsTheCpuDoesInFp64) {
  for (TestCase test : grid(at::kDouble)) {
    SCOPED_TRACE(test.name());
    TestRun on_device(test, simulated_ranks(test));
    test.device = cpu_device();
    TestRun on_host(test, simulated_ranks(test));
    on_device.steps(5);
    on_host.steps(5);
    const std::vector<Tensor> a = on_device.parameters(), b = on_host.parameters();
    for (size_t p = 0; p < a.size(); ++p)
      EXPECT_LT(largest_difference(a[p], b[p]), 1e-9) << "parameter " << p;
    EXPECT_NEAR(on_device.executor->loss_sum(), on_host.executor->loss_sum(), 1e-9);
  }
}

// Ranks that send each other kept gradients.
TEST_F(GpuExecutor, AnExchangeIsTheCpusAndAGraphChangesNoBitOfIt) {
  for (const Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
    for (const int micro_batches : {1, 2}) {
      TestCase test = on_gpu(at::kDouble);
      test.model = "llama-tiny";
      test.batch = 2;
      test.step.world = 3;
      test.step.strategy = strategy;
      test.step.micro_batches = micro_batches;
      test.step.exchange = Exchange::kept;
      test.clipped.emplace();
      test.clipped->pass = privacy::PassKind::keep;
      test.clipped->noise_multiplier = 0.7;
      // the same on both devices, whose own are drawn in fp32
      test.initial = [](ParamId id, int64_t first, const Tensor& out) {
        const Tensor values = empty_tensor({out.numel()}, at::kDouble, cpu_device());
        for (int64_t i = 0; i < out.numel(); ++i)
          values.data_ptr<double>()[i] = 0.2 * std::sin(id + 0.37 * static_cast<double>(first + i));
        out.copy_(values.view(out.sizes()));
        return true;
      };
      TestCase single = test;
      single.step = TestCase::all_of(at::kFloat);
      single.step.compute = at::kBFloat16;
      single.step.world = 3;
      single.step.strategy = strategy;
      single.step.micro_batches = micro_batches;
      expect_graph_changes_no_bit(single);
      SCOPED_TRACE(test.name());
      TestRun on_device(test, simulated_ranks(test));
      ASSERT_TRUE(on_device.executor->schedule().exchanges());
      test.device = cpu_device();
      TestRun on_host(test, simulated_ranks(test));
      on_device.steps(3);
      on_host.steps(3);
      const std::vector<Tensor> a = on_device.parameters(), b = on_host.parameters();
      for (size_t p = 0; p < a.size(); ++p)
        EXPECT_LT(largest_difference(a[p], b[p]), 1e-9) << "parameter " << p;
    }
  }
}

// The executor itself holds the book against the allocator at every row; here: what is left in the
// end.
TEST_F(GpuExecutor, EveryBufferReturns) {
  {
    TestRun first(on_gpu(at::kFloat), {});  // brings what libraries keep for the process
    first.steps(1);
  }
  for (TestCase test : grid(at::kFloat)) {
    for (const GraphMode graph : {GraphMode::on, GraphMode::off}) {
      SCOPED_TRACE(test.name());
      test.graph = graph;
      release_library_workspaces(gpu_);
      const CategoryBytes device = memory::current(Space::device),
                          pinned = memory::current(Space::pinned);
      {
        TestRun run(test, simulated_ranks(test));
        run.steps(2);
        EXPECT_GT(memory::current(Space::device).total(), device.total());
        EXPECT_EQ(memory::current(Space::pinned).total() > pinned.total(),
                  test.step.offload_params);
      }
      release_library_workspaces(gpu_);
      EXPECT_EQ(memory::current(Space::device), device);
      EXPECT_EQ(memory::current(Space::pinned), pinned);
      memory::check(Space::device, test.name());
    }
  }
}

// Rows by category, all but temporary: libraries' workspaces are there.
void expect_estimate_holds(const TestCase& test, bool workspaces_apart) {
  SCOPED_TRACE(test.name());
  release_library_workspaces(test.device);
  const CategoryBytes before[] = {memory::current(Space::host), memory::current(Space::device),
                                  memory::current(Space::pinned)};
  TestRun run(test, simulated_ranks(test));
  const int64_t kept =
      memory::current(Space::device)[Category::temporary] - before[1][Category::temporary];
  run.steps(2);
  run.executor->wait();
  const MemoryEstimate estimate = estimate_memory(run.executor->schedule());
  ASSERT_FALSE(run.executor->memory_rows().empty());
  int64_t peak = 0;
  for (const ObservedRow& row : run.executor->memory_rows()) {
    const auto expected =
        std::find_if(estimate.rows.begin(), estimate.rows.end(), [&](const MemoryRow& candidate) {
          return candidate.part == row.part && candidate.op == row.op;
        });
    ASSERT_NE(expected, estimate.rows.end());
    for (const Space space : {Space::device, Space::pinned}) {
      const auto s = static_cast<size_t>(space);
      for (int c = 0; c < kCategories; ++c) {
        const auto category = static_cast<Category>(c);
        if (category == Category::temporary) continue;
        ASSERT_EQ(row.bytes[s].after[category] - before[s][category], expected->after[s][category])
            << space_name(space) << " " << category_name(category) << " after " << name_of(row.part)
            << " row " << row.op << "\n"
            << print_schedule(run.executor->schedule(), run.executor->shape(), true);
      }
    }
    peak = std::max(peak, row.bytes[1].peak.total() - before[1].total());
  }
  const auto estimated = static_cast<double>(estimate.peak(Space::device).total());
  const auto seen = static_cast<double>(peak - (workspaces_apart ? kept : 0));
  EXPECT_NEAR(seen, estimated, 0.01 * estimated) << "libraries keep " << kept << " bytes";
}

TEST_F(GpuExecutor, TheEstimatorsBytesAreTheLedgersAtEveryRow) {
  for (TestCase test : grid(at::kFloat)) {
    test.width = 2048;
    test.batch = 1024;
    for (const GraphMode graph : {GraphMode::on, GraphMode::off}) {
      test.graph = graph;
      expect_estimate_holds(test, /*workspaces_apart=*/true);
    }
  }
}

TEST_F(GpuExecutor, TheEstimatorsBytesAreTheLedgersInMixedTypes) {
  for (TestCase test : grid(at::kFloat)) {
    test.width = 2048;
    test.batch = 1024;
    test.step.compute = at::kBFloat16;
    expect_estimate_holds(test, /*workspaces_apart=*/true);
  }
}

// At a real size the workspaces are within the one part in a hundred too.
TEST_F(GpuExecutor, TheEstimatedPeakOfAWideModelIsWithinOnePercent) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    TestCase test = on_gpu(at::kFloat);
    test.width = 16384;
    test.layers = 2;
    test.batch = 1024;
    test.step.strategy = strategy;
    test.optimizer.kind = OptimizerKind::adamw;
    expect_estimate_holds(test, /*workspaces_apart=*/false);
  }
}

TEST_F(GpuExecutor, ComputeRowsAndWaitsSumToTheStep) {
  for (TestCase test : grid(at::kFloat)) {
    test.width = 2048;
    test.batch = 1024;
    test.time_rows = true;
    for (const GraphMode graph : {GraphMode::on, GraphMode::off}) {
      SCOPED_TRACE(test.name());
      // Several micro-batches are timed row by row, without a graph.
      const bool several = test.step.micro_batches > 1;
      test.graph = several && graph == GraphMode::on ? GraphMode::automatic : graph;
      TestRun run(test, simulated_ranks(test));
      EXPECT_EQ(run.executor->graph_state() == "on", graph == GraphMode::on && !several);
      run.steps(3);
      const StepTime time = run.executor->read_times();
      ASSERT_GT(time.total_ms, 0);
      double sum = 0;
      for (const RowTime& row : time.rows) {
        // Half a microsecond is the clock's step.
        EXPECT_GE(row.begin_ms, -0.002) << "part " << row.part << " row " << row.op;
        EXPECT_GE(row.ms(), -0.002) << "part " << row.part << " row " << row.op;
        EXPECT_LE(row.end_ms, time.total_ms + 0.002) << "part " << row.part << " row " << row.op;
        if (row.lane != 0) continue;
        EXPECT_GE(row.wait_ms, -0.002) << "part " << row.part << " row " << row.op;
        sum += row.wait_ms + row.ms();
      }
      EXPECT_NEAR(sum, time.total_ms, 0.02 * time.total_ms);
      // Every row has a time.
      const Schedule& schedule = run.executor->schedule();
      const auto bodies = static_cast<size_t>(test.step.micro_batches);
      EXPECT_EQ(time.rows.size(), schedule.part(Part::prologue).size() +
                                      bodies * schedule.part(Part::body).size() +
                                      schedule.part(Part::tail).size());
    }
  }
}

TEST_F(GpuExecutor, Bf16ComputeTrainsNearlyAsFp32Does) {
  double first[2], last[2];
  for (const bool mixed : {false, true}) {
    TestCase test = on_gpu(at::kFloat);
    test.width = 256;
    test.batch = 64;
    test.optimizer.kind = OptimizerKind::adamw;
    if (mixed) test.step.compute = at::kBFloat16;
    TestRun run(test, {});
    run.steps(1);
    first[mixed] = run.executor->loss_sum();
    run.steps(50);
    last[mixed] = run.executor->loss_sum();
    EXPECT_LT(last[mixed], 0.9 * first[mixed]);
  }
  EXPECT_NEAR(first[1], first[0], 0.02 * first[0]);
  EXPECT_NEAR(last[1], last[0], 0.02 * last[0]);
}

}  // namespace
}  // namespace veil
