#include "step/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/test_run.h"
#include "estimate/estimator.h"
#include "models/linear_stack.h"

namespace veil {
namespace {

using testing::ElementsAre;

ModelShape four_layers() {
  static const Model model = linear_stack(13, 4);
  return model.shape(6, at::kFloat, false);
}

StepOptions zero3(int forward, BackwardPrefetch backward) {
  StepOptions options;
  options.world = 8;
  options.forward_prefetch = forward;
  options.backward_prefetch = backward;
  return options;
}

// The body as words: "g0" gathers unit 0, "f0" runs it forwards, "b0" backwards, "r0" releases its
// parameters, "s0" reduces its gradient, "l" is the loss.
std::vector<std::string> words(const Schedule& schedule) {
  std::vector<std::string> list;
  for (const Op& op : schedule.part(Part::body)) {
    switch (op.kind) {
      case OpKind::gather:
        list.push_back(fmt::format("g{}", op.unit));
        break;
      case OpKind::forward:
        list.push_back(fmt::format("f{}", op.block));
        break;
      case OpKind::backward:
        list.push_back(fmt::format("b{}", op.block));
        break;
      case OpKind::reduce:
        list.push_back(fmt::format("s{}", op.unit));
        break;
      case OpKind::loss:
        list.push_back("l");
        break;
      case OpKind::release:
        if (op.note == "params") list.push_back(fmt::format("r{}", op.unit));
        break;
      default:
        break;
    }
  }
  return list;
}

TEST(Schedule, GathersInForwardComeAsFarAheadAsTheDepthSays) {
  auto forward = [](int depth) {
    std::vector<std::string> list =
        words(build_schedule(four_layers(), zero3(depth, BackwardPrefetch::none)));
    list.erase(std::find(list.begin(), list.end(), "l"), list.end());
    return list;
  };
  EXPECT_THAT(forward(0),
              ElementsAre("g0", "f0", "r0", "g1", "f1", "r1", "g2", "f2", "r2", "g3", "f3"));
  EXPECT_THAT(forward(1),
              ElementsAre("g0", "g1", "f0", "r0", "g2", "f1", "r1", "g3", "f2", "r2", "f3"));
  EXPECT_THAT(forward(2),
              ElementsAre("g0", "g1", "g2", "f0", "r0", "g3", "f1", "r1", "f2", "r2", "f3"));
}

TEST(Schedule, GathersInBackwardComeBeforeAfterOrWithoutOverlap) {
  auto backward = [](BackwardPrefetch prefetch) {
    std::vector<std::string> list = words(build_schedule(four_layers(), zero3(0, prefetch)));
    list.erase(list.begin(), std::find(list.begin(), list.end(), "l"));
    return list;
  };
  EXPECT_THAT(backward(BackwardPrefetch::pre),
              ElementsAre("l", "g2", "b3", "r3", "s3", "g1", "b2", "r2", "s2", "g0", "b1", "r1",
                          "s1", "b0", "r0", "s0"));
  EXPECT_THAT(backward(BackwardPrefetch::post),
              ElementsAre("l", "b3", "r3", "g2", "s3", "b2", "r2", "g1", "s2", "b1", "r1", "g0",
                          "s1", "b0", "r0", "s0"));
  EXPECT_THAT(backward(BackwardPrefetch::none),
              ElementsAre("l", "b3", "r3", "s3", "g2", "b2", "r2", "s2", "g1", "b1", "r1", "s1",
                          "g0", "b0", "r0", "s0"));
}

TEST(Schedule, WithoutBackwardPrefetchAGatherWaitsForTheReductionBeforeIt) {
  const Schedule schedule = build_schedule(four_layers(), zero3(0, BackwardPrefetch::none));
  const std::vector<Op>& body = schedule.part(Part::body);
  int checked = 0;
  for (size_t i = 1; i < body.size(); ++i) {
    if (body[i].kind != OpKind::gather || body[i - 1].kind != OpKind::reduce) continue;
    EXPECT_THAT(body[i].after, testing::Contains(static_cast<int>(i) - 1));
    ++checked;
  }
  EXPECT_EQ(checked, 3);
}

TEST(Schedule, Zero3HoldsAtMostOnePlusDepthUnitsWhole) {
  for (const TestCase& test : full_grid(4, at::kFloat)) {
    if (test.step.strategy != Strategy::zero3) continue;
    const Schedule schedule = build_schedule(four_layers(), test.step);
    const int depth = std::max(test.step.forward_prefetch,
                               test.step.backward_prefetch == BackwardPrefetch::pre ? 1 : 0);
    std::multiset<int> whole;
    size_t most = 0;
    for (const Op& op : schedule.part(Part::body)) {
      for (const Buffer& buffer : op.creates) {
        if (buffer.role == BufferRole::whole) whole.insert(buffer.index);
      }
      most = std::max(most, whole.size());
      for (const Buffer& buffer : op.frees) {
        if (buffer.role == BufferRole::whole) whole.erase(whole.find(buffer.index));
      }
    }
    EXPECT_LE(most, static_cast<size_t>(1 + depth)) << test.name();
    EXPECT_GE(most, 1u);
    EXPECT_TRUE(whole.empty());
  }
}

TEST(Schedule, Zero2GathersOnceAStepAndNeverInTheBody) {
  for (const TestCase& test : full_grid(4, at::kFloat)) {
    if (test.step.strategy != Strategy::zero2) continue;
    const Schedule schedule = build_schedule(four_layers(), test.step);
    auto gathers = [&](Part part) {
      return std::count_if(schedule.part(part).begin(), schedule.part(part).end(),
                           [](const Op& op) { return op.kind == OpKind::gather; });
    };
    EXPECT_EQ(gathers(Part::body), 0) << test.name();
    EXPECT_EQ(gathers(Part::tail), 0);
    EXPECT_EQ(gathers(Part::prologue), static_cast<long>(schedule.layout.units.size()));
  }
}

TEST(Schedule, ReductionsHappenEachMicroBatchInZeroAndOnceInDdp) {
  for (const TestCase& test : full_grid(4, at::kFloat)) {
    const Schedule schedule = build_schedule(four_layers(), test.step);
    auto reductions = [&](Part part) {
      return std::count_if(schedule.part(part).begin(), schedule.part(part).end(),
                           [](const Op& op) { return op.kind == OpKind::reduce; });
    };
    const long units = static_cast<long>(schedule.layout.units.size()), k = test.step.micro_batches;
    const bool each_time =
        test.step.strategy != Strategy::ddp && test.step.accumulate_in == AccumulateIn::shard;
    EXPECT_EQ(k * reductions(Part::body) + reductions(Part::tail), units * (each_time ? k : 1))
        << test.name();
  }
}

TEST(Schedule, AWorldOfOneNeitherGathersNorReduces) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    StepOptions options;
    options.strategy = strategy;
    const Schedule schedule = build_schedule(four_layers(), options);
    for (const auto& part : schedule.parts) {
      for (const Op& op : part) EXPECT_EQ(op.lane, Lane::compute) << name_of(op.kind);
    }
  }
}

TEST(Schedule, EveryOperationWaitsForEarlierOnesOnlyAndOnlyComputeFrees) {
  for (const TestCase& test : full_grid(3, at::kFloat)) {
    const Schedule schedule = build_schedule(four_layers(), test.step);
    for (const auto& part : schedule.parts) {
      for (size_t i = 0; i < part.size(); ++i) {
        for (int earlier : part[i].after) EXPECT_LT(earlier, static_cast<int>(i));
        EXPECT_TRUE(part[i].lane == Lane::compute || part[i].frees.empty()) << test.name();
      }
    }
  }
}

// A block must not run before the gather of its unit has been waited for.
TEST(Schedule, EveryUseOfAGatheredUnitHasWaitedForItsGather) {
  for (const TestCase& test : full_grid(3, at::kFloat)) {
    const Schedule schedule = build_schedule(four_layers(), test.step);
    std::vector<int> in_flight(schedule.layout.units.size(), -1);
    const std::vector<Op>& body = schedule.part(Part::body);
    for (size_t i = 0; i < body.size(); ++i) {
      const Op& op = body[i];
      if (op.kind == OpKind::gather || (op.kind == OpKind::copy_in && op.note == "params"))
        in_flight[op.unit] = static_cast<int>(i);
      if (op.block < 0) continue;
      for (int u : schedule.layout.units_of_block[op.block]) {
        if (in_flight[u] < 0) continue;
        EXPECT_THAT(op.after, testing::Contains(in_flight[u])) << test.name() << " row " << i;
        in_flight[u] = -1;
      }
    }
  }
}

TEST(Schedule, TheSimulatedWorldOfEightStaysUnderTheSeedsFigures) {
  const Model model = linear_stack(16384, 8);
  const ModelShape shape = model.shape(8192, at::kFloat, false);
  StepOptions options;
  options.world = 8;
  options.on_gpu = true;
  auto gib = [](const SpaceBytes& bytes) {
    return static_cast<double>(bytes[static_cast<size_t>(Space::device)].total()) / (1 << 30);
  };
  const MemoryEstimate zero3_bytes = estimate_memory(build_schedule(shape, options));
  EXPECT_LT(gib(zero3_bytes.after_model), 2.02);
  EXPECT_LT(gib(zero3_bytes.rows.back().after), 3.02);
  EXPECT_LT(static_cast<double>(zero3_bytes.peak(Space::device).total()) / (1 << 30), 11.02);
  options.strategy = Strategy::ddp;
  const MemoryEstimate ddp_bytes = estimate_memory(build_schedule(shape, options));
  EXPECT_NEAR(gib(ddp_bytes.after_model), 9.0005, 0.0001);
  EXPECT_LT(gib(ddp_bytes.rows.back().after), 17.02);
}

TEST(Schedule, ABookedBlockLetsGoOfWhatItsReportsDoNotHold) {
  TestCase test;
  test.model = "llama-tiny";
  test.clipped.emplace();
  test.clipped->pass = privacy::PassKind::book;
  const TestRun run(test, {});
  const Schedule& schedule = run.executor->schedule();
  std::multiset<std::string> moments;
  int64_t gone = 0, held = 0;
  for (const Op& op : schedule.part(Part::body)) {
    for (const Buffer& buffer : op.frees) {
      const bool tape = buffer.role == BufferRole::tape;
      if (!tape && buffer.role != BufferRole::reported) continue;
      moments.insert(fmt::format("{} of {} at {} of {}", name_of(buffer.role), buffer.index,
                                 name_of(op.kind), op.block));
      (tape ? gone : held) += buffer.bytes;
    }
  }
  EXPECT_THAT(moments, testing::UnorderedElementsAre(
                           "tape of 1 at backward of 1", "reported of 1 at weight_grad of 1",
                           "tape of 2 at backward of 2", "reported of 2 at weight_grad of 2"));
  EXPECT_GT(gone, held);
}

// Kept gradients travel while backward goes on; what is booked is summed, and reduced under the
// other units' updates.
TEST(Schedule, KeptGradientsAreExchangedDuringBackward) {
  TestCase test;
  test.model = "llama-tiny";
  test.batch = 1;
  test.step = TestCase::all_of(at::kFloat);
  test.step.world = 3;
  test.clipped.emplace();
  test.clipped->pass = privacy::PassKind::keep;
  const auto schedule_of = [](const TestCase& of) {
    return TestRun(of, simulated_ranks(of)).executor->schedule();
  };
  const Schedule schedule = schedule_of(test);
  const std::vector<Op>&body = schedule.part(Part::body), &tail = schedule.part(Part::tail);
  std::vector<std::string> rows;
  for (const Op& op : body) {
    const bool told = op.kind == OpKind::exchange || op.kind == OpKind::backward ||
                      op.kind == OpKind::coefficients || op.kind == OpKind::combine;
    if (told) rows.push_back(fmt::format("{}{}", name_of(op.kind), std::max(op.unit, op.block)));
  }
  EXPECT_THAT(rows, ElementsAre("exchange3", "backward2", "exchange2", "backward1", "exchange1",
                                "backward0", "coefficients-1", "exchange-1", "combine0"));
  ASSERT_EQ(tail.size(), 5u);
  EXPECT_EQ(tail[0].kind, OpKind::reduce);
  EXPECT_EQ(tail[0].unit, 0);
  EXPECT_THAT(tail[4].after, ElementsAre(0));
  // Lighter than a sum or as heavy: one sample in fp32, two in bf16.
  const auto exchanges = [&](auto change) {
    TestCase other = test;
    change(other);
    return schedule_of(other).exchanges();
  };
  EXPECT_FALSE(exchanges([](TestCase& of) { of.batch = 2; }));
  EXPECT_TRUE(exchanges([](TestCase& of) { of.batch = 2, of.step.compute = at::kBFloat16; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.batch = 3, of.step.compute = at::kBFloat16; }));
  EXPECT_TRUE(exchanges([](TestCase& of) { of.batch = 3, of.step.exchange = Exchange::kept; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.step.exchange = Exchange::sums; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.step.defer_update = true; }));
  EXPECT_TRUE(
      exchanges([](TestCase& of) { of.step.defer_update = of.step.offload_optimizer = true; }));
  // A part of almost every unit of a diffusion model is booked.
  EXPECT_FALSE(exchanges([](TestCase& of) { of.model = "dit-tiny"; }));
  EXPECT_TRUE(
      exchanges([](TestCase& of) { of.model = "dit-tiny", of.step.exchange = Exchange::kept; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.step.strategy = Strategy::ddp; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.step.world = 1; }));
  EXPECT_FALSE(exchanges([](TestCase& of) { of.clipped->pass = privacy::PassKind::book; }));
  EXPECT_FALSE(
      exchanges([](TestCase& of) { of.clipped->clip = privacy::ClipFunction::per_layer; }));
  EXPECT_TRUE(exchanges([](TestCase& of) { of.step.micro_batches = 2; }));
  EXPECT_FALSE(exchanges([](TestCase& of) {
    of.step.micro_batches = 2;
    of.step.accumulate_in = AccumulateIn::whole;
  }));
  // Asked for in vain: why.
  EXPECT_EQ(schedule.not_exchanged, "");
  const auto why_not = [&](auto change) {
    TestCase other = test;
    other.step.exchange = Exchange::kept;
    change(other);
    return schedule_of(other).not_exchanged;
  };
  EXPECT_EQ(why_not([](TestCase&) {}), "");
  EXPECT_EQ(why_not([](TestCase& of) { of.step.strategy = Strategy::ddp; }),
            "gradients are not sharded");
  EXPECT_EQ(why_not([](TestCase& of) { of.clipped->pass = privacy::PassKind::book; }),
            "none are kept (pass_plan: keep)");
  EXPECT_EQ(why_not([](TestCase& of) { of.clipped->clip = privacy::ClipFunction::per_layer; }),
            "layers have clip norms of their own");
  EXPECT_EQ(why_not([](TestCase& of) { of.step.micro_batches = 2, of.clipped->combine_every = 2; }),
            "micro-batches are summed whole (accumulate: shard, combine_every: 1)");
  EXPECT_EQ(why_not([](TestCase& of) { of.step.wrap = WrapPolicy::none; }),
            "a part of every unit is booked");
  EXPECT_EQ(why_not([](TestCase& of) { of.clipped.reset(); }), "the step is not private");
}

// What sums received gradients waits for them and for all ranks' coefficients, and what was sent is
// let go when it has arrived.
TEST(Schedule, SumsOfReceivedGradientsWaitForThemAndForTheirCoefficients) {
  TestCase test;
  test.model = "llama-tiny";
  test.batch = 1;
  test.step = TestCase::all_of(at::kFloat);
  test.step.world = 3;
  test.step.exchange = Exchange::kept;
  test.clipped.emplace();
  test.clipped->pass = privacy::PassKind::keep;
  for (const int micro_batches : {1, 2}) {
    test.step.micro_batches = micro_batches;
    const Schedule schedule = TestRun(test, simulated_ranks(test)).executor->schedule();
    const std::vector<Op>& body = schedule.part(Part::body);
    std::vector<int> sent(schedule.layout.units.size(), -1);
    int coefficients = -1, sums = 0, released = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      const Op& op = body[i];
      if (op.kind == OpKind::exchange) {
        (op.unit < 0 ? coefficients : sent[static_cast<size_t>(op.unit)]) = static_cast<int>(i);
      } else if (op.kind == OpKind::release && op.note == "kept gradients") {
        EXPECT_THAT(op.after, testing::Contains(sent[static_cast<size_t>(op.unit)]));
        ++released;
      } else if (op.kind == OpKind::combine && schedule.exchanges(op.unit)) {
        EXPECT_THAT(op.after,
                    testing::IsSupersetOf({sent[static_cast<size_t>(op.unit)], coefficients}));
        ++sums;
      }
    }
    EXPECT_EQ(sums, micro_batches == 1 ? 0 : 3);
    EXPECT_EQ(released, 3);
  }
}

TEST(Schedule, ItsPrintNamesEveryRow) {
  const Schedule schedule = build_schedule(four_layers(), zero3(1, BackwardPrefetch::pre));
  const std::string text = print_schedule(schedule, four_layers());
  size_t rows = 0;
  for (const auto& part : schedule.parts) rows += part.size();
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), rows + 1);
  EXPECT_NE(text.find("gather   gather    layers.3"), std::string::npos) << text;
}

TEST(Schedule, SettingsThatMakeNoSenseAreRefused) {
  StepOptions options;
  options.world = 0;
  EXPECT_THROW(build_schedule(four_layers(), options), UserError);
  options.world = 1;
  options.micro_batches = 0;
  EXPECT_THROW(build_schedule(four_layers(), options), UserError);
}

}  // namespace
}  // namespace veil
