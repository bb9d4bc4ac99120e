// Held-out evaluation is the same whatever the world and the strategy, and changes nothing of the
// run that it looks at.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "comm/launch.h"
#include "engine/test_run.h"
#include "ranks/rank_harness.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace veil {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kGlobalBatch = 12, kHeldOut = 17;  // the last batch is filled up with padding

// As TestRun makes it small.
std::shared_ptr<const Feed> images(int64_t count, uint64_t seed) {
  DitConfig config = dit_preset("dit-tiny").value();
  config.image_size = 8;
  config.patch = 2;
  ImageFeedOptions options;
  options.compute = at::kDouble;
  return make_image_feed(std::make_shared<data::Shapes>(count, seed), config, options);
}

struct Trained {
  std::vector<EvaluationLine> evaluations;
  std::vector<Tensor> params;
};

Trained train(int world, Strategy strategy, double decay, int64_t evaluate_every, Ranks ranks) {
  TestCase test;
  test.model = "dit-tiny";
  test.batch = kGlobalBatch / world;
  test.step.world = world;
  test.step.strategy = strategy;
  test.optimizer.kind = OptimizerKind::adamw;
  TestRun run(test, std::move(ranks));
  std::optional<WeightAverage> average;
  if (decay > 0) average.emplace(*run.executor, decay);
  Trained result;
  TrainEvents events;
  events.on_evaluation = [&](const EvaluationLine& line) { result.evaluations.push_back(line); };
  TrainOptions options;
  options.steps = kSteps;
  options.learning_rate = [](int64_t) { return 0.01; };
  options.evaluate_every = evaluate_every;
  options.average = average ? &*average : nullptr;
  Trainer trainer(*run.executor, images(40, 5), evaluate_every > 0 ? images(kHeldOut, 6) : nullptr,
                  options, events);
  EXPECT_TRUE(trainer.run({}));
  result.params = run.parameters();
  return result;
}

TEST(EvaluationRanks, TheHeldOutLossOfImagesIsOneWhateverTheWorldAndTheStrategy) {
  const int world = rank_info_from_environment().world;
  for (const double decay : {0.0, 0.9}) {
    const Trained alone = train(1, Strategy::ddp, decay, 1, {});
    ASSERT_EQ(alone.evaluations.size(), static_cast<size_t>(kSteps));
    EXPECT_LT(alone.evaluations.back().loss, alone.evaluations.front().loss);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      const Trained mine = train(world, strategy, decay, 1, both_lanes());
      for (size_t i = 0; i < mine.evaluations.size(); ++i) {
        EXPECT_NEAR(mine.evaluations[i].loss, alone.evaluations[i].loss, 1e-9)
            << name_of(strategy) << " " << decay;
        EXPECT_EQ(mine.evaluations[i].samples, kHeldOut);
        EXPECT_EQ(mine.evaluations[i].tokens, 0);
        EXPECT_EQ(mine.evaluations[i].of_average, decay > 0);
      }
    }
  }
}

TEST(EvaluationRanks, ARunThatIsEvaluatedEndsAsOneThatIsNotToTheBit) {
  const int world = rank_info_from_environment().world;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    const Trained watched = train(world, strategy, 0.9, 1, both_lanes());
    const Trained unwatched = train(world, strategy, 0.9, 0, both_lanes());
    for (size_t p = 0; p < watched.params.size(); ++p)
      EXPECT_TRUE(at::equal(watched.params[p], unwatched.params[p]))
          << name_of(strategy) << " parameter " << p;
  }
}

// With a decay of nearly 1 only the first steps' lesser decay lets it follow: the average is
// behind.
TEST(EvaluationRanks, AnAverageThatIsKeptIsWhatIsEvaluated) {
  const int world = rank_info_from_environment().world;
  const Trained live = train(world, Strategy::zero3, 0, kSteps, both_lanes());
  const Trained average = train(world, Strategy::zero3, 0.999, kSteps, both_lanes());
  EXPECT_GT(std::abs(live.evaluations.back().loss - average.evaluations.back().loss), 1e-4);
}

}  // namespace
}  // namespace veil
