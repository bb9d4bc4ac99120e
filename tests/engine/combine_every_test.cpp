// Kept gradients of several micro-batches summed at once (ClipMethod::combine_every): the same
// additions in the same order, so that every number has the same bits.
#include <gtest/gtest.h>

#include <tuple>

#include "engine/test_run.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::PassKind;

// Five micro-batches, which two, three and four leave some of for the end.
std::vector<TestCase> several_cases() {
  std::vector<TestCase> cases;
  for (const char* model : {"", "llama-tiny", "llama-tiny-tied", "gpt2-tiny", "dit-tiny"}) {
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (int world : {1, 3}) {
        const size_t i = cases.size();
        TestCase test;
        test.model = model;
        test.step = TestCase::all_of(i % 4 == 2 ? at::kBFloat16 : at::kFloat);
        if (i % 4 == 3) test.step.compute = at::kBFloat16;
        test.step.world = world;
        test.step.strategy = strategy;
        test.step.micro_batches = 5;
        test.step.accumulate_in = AccumulateIn::whole;
        test.step.checkpointing = static_cast<Checkpointing>(i % 3);
        test.step.wrap = i % 5 == 3   ? WrapPolicy::size
                         : i % 7 == 5 ? WrapPolicy::none
                                      : WrapPolicy::module;
        test.step.min_params = *model ? 3000 : 300;
        test.batch = 2;
        test.optimizer.kind = i % 2 ? OptimizerKind::adamw : OptimizerKind::sgd;
        if (i % 3 == 2 && *model) test.frozen = {"*.0.*"};
        test.clipped.emplace();
        test.clipped->pass = PassKind::keep;
        test.clipped->clip = i % 4 == 1 ? ClipFunction::per_layer : ClipFunction::abadi;
        test.clipped->noise_multiplier = 0.7;
        cases.push_back(test);
      }
    }
  }
  return cases;
}

// Steps on samples of their own, `sizes` micro-batches each if their number varies; the model is
// evaluated between them.
Trained train_on(const TestCase& test, const std::vector<int>& sizes) {
  TestRun run(test, simulated_ranks(test));
  Trained trained;
  for (size_t step = 0; step < sizes.size(); ++step) {
    const int64_t samples = test.batch * sizes[step];
    const auto first = static_cast<int64_t>(1000 * (step + 1));
    run.executor->load(samples == 0 ? Batch{} : run.samples(samples, first));
    run.steps(1);
    trained.losses.push_back(run.executor->loss_sum());
    EXPECT_EQ(run.executor->clip_facts().samples, samples);
    if (step == 1)
      trained.losses.push_back(
          run.executor->evaluate(run.samples(test.batch, 7)).losses.sum().item<double>());
  }
  trained.parameters = run.parameters();
  return trained;
}

TEST(CombineEvery, ChangesNoBit) {
  int turn = 0;
  for (TestCase test : several_cases()) {
    const std::vector<int> sizes(3, test.step.micro_batches);
    const Trained one_by_one = train_on(test, sizes);
    for (int every : {2 + turn++ % 3, 9}) {
      test.clipped->combine_every = every;
      test.step.defer_update = test.step.world > 1 && every < 9;
      SCOPED_TRACE(test.name());
      expect_equal_bits(train_on(test, sizes), one_by_one);
    }
  }
}

// Of a step with fewer micro-batches than are summed at once, what an earlier one left behind is no
// part: not with samples left over, not without any.
TEST(CombineEvery, WhatEarlierStepsKeptIsNoPartOfASum) {
  for (const char* model : {"", "llama-tiny", "dit-tiny"}) {
    TestCase test;
    test.model = model;
    test.step = TestCase::all_of(at::kFloat);
    test.step.varying = true;
    test.batch = 2;
    test.clipped.emplace();
    test.clipped->pass = PassKind::keep;
    const std::vector<int> sizes = {3, 1, 0, 2, 4, 5, 1};
    const Trained one_by_one = train_on(test, sizes);
    for (int every : {2, 3, 8}) {
      test.clipped->combine_every = every;
      SCOPED_TRACE(test.name());
      expect_equal_bits(train_on(test, sizes), one_by_one);
    }
  }
}

// A graph for each place that a micro-batch can have.
TEST(GpuCombineEvery, ChangesNoBitWithAndWithoutGraphs) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (const char* model : {"", "llama-tiny", "llama-tiny-tied", "dit-tiny"}) {
    for (const DType dtype : {at::kFloat, at::kBFloat16}) {
      TestCase test;
      test.model = model;
      test.device = gpu_device(0);
      test.step = TestCase::all_of(at::kFloat);
      test.step.compute = dtype;
      test.step.micro_batches = 5;
      test.batch = 2;
      test.clipped.emplace();
      test.clipped->pass = PassKind::keep;
      test.clipped->noise_multiplier = 0.7;
      const std::vector<int> sizes(3, test.step.micro_batches);
      const Trained one_by_one = train_on(test, sizes);
      for (int every : {2, 3, 5}) {
        for (const GraphMode graph : {GraphMode::on, GraphMode::off}) {
          test.clipped->combine_every = every;
          test.graph = graph;
          SCOPED_TRACE(test.name());
          expect_equal_bits(train_on(test, sizes), one_by_one);
        }
      }
    }
  }
}

// The sum is read and written once for each group, and there is room for so many samples' gradients
// and no more.
TEST(CombineEvery, SumsAreAPartOfTheirOwn) {
  TestCase test;
  test.model = "llama-tiny";
  test.step.micro_batches = 5;
  test.clipped.emplace();
  test.clipped->pass = PassKind::keep;
  const auto kept_bytes = [](const Schedule& schedule) {
    int64_t bytes = 0;
    for (const Buffer& buffer : schedule.resident)
      bytes += buffer.role == BufferRole::sample_grads ? buffer.bytes : 0;
    for (const Op& op : schedule.part(Part::body)) {
      for (const Buffer& buffer : op.creates)
        bytes += buffer.role == BufferRole::sample_grads ? buffer.bytes : 0;
    }
    return bytes;
  };
  TestRun one(test, {});
  EXPECT_TRUE(one.executor->schedule().part(Part::sums).empty());
  for (const auto& [every, groups, kept] : {std::tuple{2, 3, 2}, {4, 2, 4}, {9, 1, 5}}) {
    test.clipped->combine_every = every;
    TestRun run(test, {});
    const Schedule& schedule = run.executor->schedule();
    EXPECT_FALSE(schedule.part(Part::sums).empty());
    for (const Op& op : schedule.part(Part::body)) EXPECT_NE(op.kind, OpKind::combine);
    int found = 0;
    for (int m = 0; m < 5; ++m) found += schedule.sums_after(m, 5);
    EXPECT_EQ(found, groups);
    EXPECT_EQ(kept_bytes(schedule), kept * kept_bytes(one.executor->schedule()));
  }
}

}  // namespace
}  // namespace veil
