// A deferred update (StepOptions::defer_update) moves work from the end of a step to the beginning
// of the next one, and changes nothing else: every number has the same bits.
#include <gtest/gtest.h>

#include "engine/test_run.h"

namespace veil {
namespace {

using privacy::PassKind;

// Every model in every strategy, with kept gradients and bookings of one micro-batch and whole sums
// of several.
std::vector<TestCase> deferred_cases() {
  std::vector<TestCase> cases;
  for (const char* model : {"", "llama-tiny", "llama-tiny-tied", "gpt2-tiny", "dit-tiny"}) {
    for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      for (int plan = 0; plan < 5; ++plan) {
        const size_t i = cases.size();
        TestCase test;
        test.model = model;
        test.step = TestCase::all_of(i % 4 == 2 ? at::kBFloat16 : at::kFloat);
        if (i % 4 == 3) test.step.compute = at::kBFloat16;  // parameters are gathered once per step
        test.step.world = 3;
        test.step.strategy = strategy;
        test.step.micro_batches = plan == 0 || plan == 4 ? 1 : 2;
        test.step.accumulate_in = AccumulateIn::whole;
        if (plan != 4) test.step.checkpointing = static_cast<Checkpointing>(i % 3);
        test.step.wrap = i % 5 == 3   ? WrapPolicy::size
                         : i % 7 == 5 ? WrapPolicy::none
                                      : WrapPolicy::module;
        test.step.forward_prefetch = static_cast<int>(i % 4);
        test.step.backward_prefetch = static_cast<BackwardPrefetch>(i / 3 % 3);
        test.step.min_params = *model ? 3000 : 300;
        test.batch = 3;
        test.optimizer.kind = i % 2 ? OptimizerKind::adamw : OptimizerKind::sgd;
        if (i % 3 == 2 && *model) test.frozen = {"*.0.*"};
        if (plan != 3) {
          test.clipped.emplace();
          test.clipped->pass = plan == 2 || plan == 4 ? PassKind::book : PassKind::keep;
          test.clipped->noise_multiplier = 0.7;
        }
        // blocks of the linear stack and of DiT share what they book
        if (plan == 4 && (!*model || test.model == "dit-tiny")) continue;
        cases.push_back(test);
      }
    }
  }
  return cases;
}

// Steps on samples of their own; C changes between them, and the model is evaluated once.
Trained train(TestCase test, bool deferred) {
  test.step.defer_update = deferred;
  TestRun run(test, simulated_ranks(test));
  EXPECT_EQ(run.executor->schedule().defers_update, deferred);
  Trained trained;
  const int64_t samples = test.batch * test.step.micro_batches;
  for (int step = 0; step < 5; ++step) {
    run.executor->load(run.samples(samples, 1000 * (step + 1)));
    if (test.clipped) run.executor->set_clip_norms({0.05 / (step + 1)});
    run.steps(1);
    trained.losses.push_back(run.executor->loss_sum());
    if (step == 2)
      trained.losses.push_back(
          run.executor->evaluate(run.samples(test.batch, 7)).losses.sum().item<double>());
  }
  trained.parameters = run.parameters();
  return trained;
}

TEST(DeferredUpdate, ChangesNoBit) {
  for (const TestCase& test : deferred_cases()) {
    SCOPED_TRACE(test.name());
    expect_equal_bits(train(test, false), train(test, true));
  }
}

// What forward reads has been updated, whatever is gathered ahead; reductions are issued before the
// forward that they run under; and the sums of the step before are done when a new one's begin.
TEST(DeferredUpdate, AUnitIsUpdatedBeforeItIsRead) {
  for (TestCase test : deferred_cases()) {
    test.step.defer_update = true;
    SCOPED_TRACE(test.name());
    TestRun run(test, simulated_ranks(test));
    const Schedule& schedule = run.executor->schedule();
    std::vector<int> updated(schedule.layout.units.size(), 0);
    int forwards = 0;
    size_t finished = 0, trained = 0;
    for (const UnitLayout& unit : schedule.layout.units) trained += !unit.frozen;
    for (const Op& op : schedule.part(Part::turn)) {
      const auto expect_updated = [&](int unit) {
        const auto index = static_cast<size_t>(unit);
        if (schedule.layout.units[index].frozen) return;
        EXPECT_EQ(updated[index], 1) << name_of(op.kind) << " of " << unit;
      };
      switch (op.kind) {
        case OpKind::update:
          ++updated[static_cast<size_t>(op.unit)];
          ++finished;
          break;
        case OpKind::gather:
          expect_updated(op.unit);
          break;
        case OpKind::weight_grad:  // nothing that it reads is made anew yet
          if (finished < trained) {
            EXPECT_GE(op.block, forwards);
          }
          break;
        case OpKind::forward:
          ++forwards;
          for (int unit : schedule.layout.units_of_block[static_cast<size_t>(op.block)])
            expect_updated(unit);
          break;
        case OpKind::zero:
        case OpKind::loss:
        case OpKind::backward:
          EXPECT_EQ(finished, trained) << name_of(op.kind);
          break;
        default:
          break;
      }
    }
  }
}

// A schedule that cannot wait says why, and is the one without the wish.
TEST(DeferredUpdate, IsNotPromisedWhereItCannotBe) {
  TestCase test;
  test.model = "llama-tiny";
  test.step.world = 3;
  test.step.defer_update = true;
  const auto why_not = [](const TestCase& wish) {
    TestRun run(wish, simulated_ranks(wish));
    EXPECT_FALSE(run.executor->schedule().defers_update);
    EXPECT_TRUE(run.executor->schedule().part(Part::turn).empty());
    return run.executor->schedule().not_deferred;
  };
  EXPECT_EQ(why_not(test), "gradients are reduced during backward already");
  TestCase shards = test;
  shards.step.micro_batches = 2;
  EXPECT_EQ(why_not(shards), "micro-batches are summed in shards (accumulate: whole)");
  TestCase scaled = test;
  scaled.max_grad_norm = 1;
  EXPECT_EQ(why_not(scaled), "the norm of the whole gradient is taken first");
  TestCase offloaded = test;
  offloaded.step.offload_optimizer = true;
  EXPECT_EQ(why_not(offloaded), "parameters or optimizer state are in host memory");
  TestCase remade = test;
  remade.clipped.emplace();
  remade.clipped->pass = PassKind::book;
  remade.step.checkpointing = Checkpointing::full;
  EXPECT_EQ(why_not(remade), "what was booked is read beside activations that are made again");
  TestCase shared = remade;
  shared.step.checkpointing = Checkpointing::none;
  for (const char* model : {"", "dit-tiny"}) {
    shared.model = model;
    EXPECT_EQ(why_not(shared), "blocks share what they booked, and let it go from the last one on");
  }
  TestCase sent = test;
  sent.clipped.emplace();
  sent.clipped->pass = PassKind::keep;
  sent.step.exchange = Exchange::kept;
  EXPECT_EQ(why_not(sent), "ranks exchange kept gradients during backward already");
  TestCase alone = test;
  alone.step.world = 1;
  EXPECT_EQ(why_not(alone), "");
}

}  // namespace
}  // namespace veil
