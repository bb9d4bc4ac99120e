// Milliseconds without running: what the rows do, what a machine takes for it, and how prices are
// fitted.
#include "estimate/time_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "models/family.h"
#include "privacy/clip_method.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

// Two layers of a model whose sides are long enough for its products to count as such.
ModelShape two_layers(const std::string& name, int64_t batch, int64_t tokens) {
  auto config = *preset_config(name);
  config.layers = 2;
  return language_model(config, {.tokens = tokens}).shape(batch, at::kFloat, /*on_gpu=*/false);
}

// FLOPs of every kind, in units of 1e9.
double flops_of(const Work& work) {
  double sum = 0;
  for (const auto& entry : names(Amount{})) {
    if (entry.value <= Amount::clip) sum += work[entry.value];
  }
  return sum;
}

Work step_work(const Schedule& schedule, const ModelShape& shape, OpKind kind) {
  const StepWork work(schedule, shape, NoiseGenerator::hardened);
  Work sum;
  for (const auto& part : schedule.parts) {
    for (const Op& op : part) {
      if (op.kind == kind && op.lane == Lane::compute) sum += work.of(op);
    }
  }
  return sum;
}

StepOptions clipped_by(const ModelShape& shape, PassKind pass, NormRule rule) {
  StepOptions step;
  step.clip = privacy::uniform_method(shape, pass, rule);
  return step;
}

TEST(StepWorkTest, ForwardRowsDoTheFlopsOfTheModel) {
  for (const char* const name : {"smollm2-135m", "gpt2", "qwen3-0.6b", "gemma3-270m"}) {
    const ModelShape shape = two_layers(name, 2, 96);
    const Schedule schedule = build_schedule(shape, {});
    double blocks = 0;
    for (const BlockShape& block : shape.blocks) blocks += static_cast<double>(block.forward_flops);
    EXPECT_NEAR(flops_of(step_work(schedule, shape, OpKind::forward)) * 1e9, blocks, 1e-9 * blocks)
        << name;
  }
}

// Each product three times, attention once and two and a half times: what the literature counts.
TEST(StepWorkTest, APlainBackwardDoesTwiceTheProductsOfForward) {
  const ModelShape shape = two_layers("smollm2-135m", 2, 96);
  const Schedule schedule = build_schedule(shape, {});
  const Work forward = step_work(schedule, shape, OpKind::forward),
             backward = step_work(schedule, shape, OpKind::backward);
  const double products = flops_of(forward) - forward[Amount::attention_forward];
  EXPECT_NEAR(flops_of(backward) - backward[Amount::attention_backward], 2 * products,
              1e-9 * products);
  EXPECT_NEAR(backward[Amount::attention_backward], 2.5 * forward[Amount::attention_forward],
              1e-9 * forward[Amount::attention_forward]);
}

TEST(StepWorkTest, EveryPlanMakesEveryWeightGradientOnce) {
  const ModelShape shape = two_layers("smollm2-135m", 2, 96);
  const Work forward = step_work(build_schedule(shape, {}), shape, OpKind::forward);
  const double products = flops_of(forward) - forward[Amount::attention_forward];
  const Work book =
      step_work(build_schedule(shape, clipped_by(shape, PassKind::book, NormRule::ghost)), shape,
                OpKind::weight_grad);
  EXPECT_NEAR(book[Amount::clip], products, 1e-9 * products);
  const Work twice =
      step_work(build_schedule(shape, clipped_by(shape, PassKind::two_pass, NormRule::flash)),
                shape, OpKind::backward);
  EXPECT_NEAR(twice[Amount::clip], products, 1e-9 * products);
  EXPECT_NEAR(twice[Amount::tile], products, 1e-9 * products);
  const Work kept =
      step_work(build_schedule(shape, clipped_by(shape, PassKind::keep, NormRule::materialize)),
                shape, OpKind::backward);
  EXPECT_NEAR(flops_of(kept) - kept[Amount::attention_backward], 2 * products, 1e-9 * products);
  EXPECT_GT(kept[Amount::kept], 0);
}

TEST(StepWorkTest, NoiseIsDrawnForEveryUpdatedNumberOfAPrivateStepOnly) {
  const ModelShape shape = two_layers("smollm2-135m", 2, 96);
  const auto numbers = static_cast<double>(shape.param_count());
  const Work plain = step_work(build_schedule(shape, {}), shape, OpKind::update);
  EXPECT_EQ(plain[Amount::noise_hardened], 0);
  const Work drawn =
      step_work(build_schedule(shape, clipped_by(shape, PassKind::keep, NormRule::materialize)),
                shape, OpKind::update);
  EXPECT_GE(drawn[Amount::noise_hardened] * 1e9, numbers);
  EXPECT_LE(drawn[Amount::noise_hardened] * 1e9, 1.01 * numbers);  // padding
  EXPECT_EQ(drawn[Amount::noise_philox], 0);
}

class TimeOf : public testing::Test {
 protected:
  double ms(const StepOptions& step, SimulatedLink link = {}) const {
    return estimate(step, link).ms;
  }
  TimeEstimate estimate(const StepOptions& step, SimulatedLink link = {}) const {
    return estimate_time(build_schedule(shape_, step), shape_,
                         {prices_, link, NoiseGenerator::philox});
  }
  ModelShape shape_ = two_layers("smollm2-135m", 2, 96);
  MachinePrices prices_ = assumed_prices(/*on_gpu=*/true, at::kFloat);
};

TEST_F(TimeOf, ALoneRankTakesItsRowsAndNothingElse) {
  const TimeEstimate alone = estimate({});
  EXPECT_NEAR(alone.ms, alone.compute_ms + alone.memory_ms + alone.launches_ms, 1e-9 * alone.ms);
  EXPECT_EQ(alone.network_ms, 0);
  EXPECT_LT(alone.low_ms, alone.ms);
  EXPECT_GT(alone.high_ms, alone.ms);
}

TEST_F(TimeOf, MicroBatchesRepeatTheBodyOnly) {
  StepOptions step;
  step.varying = true;  // the same schedule for any number of them
  const double one = ms(step);
  step.micro_batches = 2;
  const double two = ms(step);
  step.micro_batches = 3;
  EXPECT_NEAR(ms(step) - two, two - one, 1e-9 * two);
  EXPECT_LT(two, 2 * one);
}

TEST_F(TimeOf, ASlowLinkBoundsTheStepAndAFastOneDoesNot) {
  StepOptions step;
  step.world = 8;
  const TimeEstimate fast = estimate(step, {.bandwidth_bytes_per_s = 1e15, .latency_s = 0}),
                     slow = estimate(step, {.bandwidth_bytes_per_s = 1e9, .latency_s = 0});
  EXPECT_NEAR(fast.network_ms, 0, 0.01 * fast.ms);
  EXPECT_EQ(slow.bound(), "network");
  // A rank of zero3 receives all but its own shard of the parameters in forward and in backward, the
  // tied table for the head as well, and sends as much of the gradients.
  const double bytes = static_cast<double>(shape_.param_count()) * 4 * 7 / 8;
  EXPECT_GT(slow.ms, 3 * bytes / 1e9 * 1e3);
  EXPECT_LT(slow.ms, fast.ms + 4 * bytes / 1e9 * 1e3 * 1.01);
}

TEST_F(TimeOf, CheckpointingAndASecondPassTakeLonger) {
  StepOptions step = clipped_by(shape_, PassKind::keep, NormRule::materialize);
  const double keep = ms(step);
  step.checkpointing = Checkpointing::full;
  EXPECT_GT(ms(step), keep);
  EXPECT_GT(ms(clipped_by(shape_, PassKind::two_pass, NormRule::flash)),
            ms(clipped_by(shape_, PassKind::book, NormRule::flash)));
}

// Observations that follow known prices exactly.
std::vector<Observation> obeying(const MachinePrices& prices) {
  std::vector<Observation> seen;
  const ModelShape shapes[] = {two_layers("smollm2-135m", 2, 96), two_layers("gpt2", 1, 160),
                               two_layers("qwen3-0.6b", 3, 72), two_layers("smollm2-360m", 4, 48)};
  int number = 0;
  for (const ModelShape& shape : shapes) {
    for (const PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
      for (const NormRule rule : {NormRule::ghost, NormRule::flash}) {
        const Schedule schedule = build_schedule(shape, clipped_by(shape, pass, rule));
        const StepWork work(schedule, shape, NoiseGenerator::hardened);
        for (const auto& part : schedule.parts) {
          for (const Op& op : part) {
            const Work one = work.of(op);
            seen.push_back({one, prices.seconds_of(one) * 1e3, 1, number});
          }
        }
        ++number;
      }
    }
  }
  return seen;
}

TEST(FittedPrices, StepsThatFollowPricesArePredictedAndWhatNobodySawStays) {
  MachinePrices truth = assumed_prices(/*on_gpu=*/false, at::kFloat);
  for (size_t i = 0; i < truth.seconds.size(); ++i)
    truth.seconds[i] *= 0.6 + 0.2 * static_cast<double>(i % 5);
  const MachinePrices prior = assumed_prices(/*on_gpu=*/false, at::kFloat),
                      found = fitted_prices(obeying(truth), prior);
  for (const double seconds : found.seconds) EXPECT_GE(seconds, 0);
  EXPECT_LT(found.spread, 0.02);  // steps that were left out, by the others
  EXPECT_LE(found.typical, found.spread);
  for (const Amount unseen : {Amount::copied, Amount::noise_philox, Amount::product_1t})
    EXPECT_NEAR(found.seconds[static_cast<size_t>(unseen)],
                prior.seconds[static_cast<size_t>(unseen)],
                1e-9 * prior.seconds[static_cast<size_t>(unseen)])
        << name_of(unseen);
}

TEST(MachinePricesTest, ASmallerGpuIsSlowerAndItsSpreadWider) {
  const ModelShape shape = two_layers("smollm2-135m", 2, 96);
  const Schedule schedule = build_schedule(shape, {});
  auto ms = [&](KnownGpu gpu) {
    return estimate_time(schedule, shape, {known_prices(gpu, at::kBFloat16)}).ms;
  };
  EXPECT_LT(ms(KnownGpu::h200), ms(KnownGpu::h100));
  EXPECT_LT(ms(KnownGpu::h100), ms(KnownGpu::a100));
  EXPECT_GT(known_prices(KnownGpu::a100, at::kBFloat16).spread,
            known_prices(KnownGpu::h200, at::kBFloat16).spread);
}

TEST(MachinePricesTest, StoredPricesComeBackAndADamagedFileIsAsIfItWereNotThere) {
  const std::string folder = testing::TempDir() + "/machine_prices";
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/prices.json";
  EXPECT_FALSE(stored_prices(path, "one"));
  MachinePrices prices = assumed_prices(/*on_gpu=*/true, at::kBFloat16);
  prices.machine = "one";
  store_prices(path, prices);
  prices.machine = "two";
  prices.spread = 0.5;
  store_prices(path, prices);
  const auto one = stored_prices(path, "one"), two = stored_prices(path, "two");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->seconds, prices.seconds);
  EXPECT_EQ(two->spread, 0.5);
  EXPECT_FALSE(stored_prices(path, "three"));
  write_file_atomically(path, R"({"one": {"source": "x", "seconds": {}}, "two": 3)");
  EXPECT_FALSE(stored_prices(path, "one"));
  write_file_atomically(path, R"({"one": {"source": "x", "seconds": {}}})");
  EXPECT_FALSE(stored_prices(path, "one"));
  EXPECT_FALSE(stored_prices("", "one"));
}

TEST(MachinePricesTest, PricesOfRowsThatWereCountedOtherwiseAreNotUsedAndTheSourceSaysSo) {
  const std::string path = testing::TempDir() + "/older_prices.json";
  std::filesystem::remove(path);
  const auto source = [&](const std::string& file) {
    return prices_for(file, cpu_device(), at::kFloat).source;
  };
  const std::string built_in = source("");
  EXPECT_EQ(source(path), built_in);
  MachinePrices prices = assumed_prices(/*on_gpu=*/false, at::kFloat);
  prices.machine = priced_machine(cpu_device(), at::kFloat);
  prices.source = "measured here";
  store_prices(path, prices);
  EXPECT_EQ(source(path), "measured here");
  const std::string stored = read_file(path),
                    now = fmt::format(R"("amounts": {})", kAmountsVersion);
  ASSERT_NE(stored.find(now), std::string::npos);
  // Of another version, and as builds wrote it that knew of none.
  for (const std::string& other : {std::string(R"("amounts": 1)"), std::string(R"("kept": 1)")}) {
    std::string changed = stored;
    write_file_atomically(path, changed.replace(changed.find(now), now.size(), other));
    EXPECT_FALSE(stored_prices(path, prices.machine)) << other;
    EXPECT_THAT(source(path), testing::AllOf(testing::StartsWith(built_in),
                                             testing::HasSubstr("veil doctor --calibrate")));
  }
}

}  // namespace
}  // namespace veil
