// A private training run is one run whatever the world: the same samples are drawn, padding and
// sharing change nothing, and the noise is the same.
#include <gtest/gtest.h>

#include "comm/launch.h"
#include "engine/test_run.h"
#include "privacy/sampler.h"
#include "ranks/rank_harness.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace veil::private_training_test {
namespace {

constexpr int64_t kTokens = 12, kSamples = 40;
constexpr int kSteps = 6;

std::shared_ptr<const data::Samples> samples() {
  data::StoreHeader header;
  header.tokenizer.name = "numbers";
  header.tokenizer.vocabulary_size = 37;
  data::StoreInMemory memory(header);
  for (int64_t document = 0; document < kSamples; ++document) {
    data::EncodedDocument made;
    for (int64_t i = 0; i < kTokens + 1; ++i)
      made.tokens.push_back(static_cast<int32_t>(
          (7 * document * document + 5 * i * (document % 5 + 1) + i * i) % 37));
    made.hash = static_cast<uint64_t>(document);
    memory.append(made);
  }
  return std::make_shared<data::Samples>(
      std::make_shared<data::TokenStore>(memory.finish()),
      data::SampleOptions{.kind = data::SampleKind::document, .length = kTokens});
}

struct Trained {
  std::vector<int64_t> drawn;
  std::vector<double> losses, clip_norms;
  std::vector<Tensor> params;
};

// As TestRun makes it small.
std::shared_ptr<const Feed> images() {
  DitConfig config = dit_preset("dit-tiny").value();
  config.image_size = 8;
  config.patch = 2;
  ImageFeedOptions options;
  options.label_drop = 0.3;
  options.compute = at::kDouble;
  return make_image_feed(std::make_shared<data::Shapes>(kSamples, 5), config, options);
}

Trained train(const std::string& model, int world, Strategy strategy, int64_t micro_batch,
              privacy::ClipFunction clip, double sigma, Ranks ranks) {
  TestCase test;
  test.model = model;
  test.tokens = kTokens;
  test.batch = micro_batch;
  test.step.world = world;
  test.step.strategy = strategy;
  test.step.varying = true;
  test.optimizer.kind = OptimizerKind::sgd;
  privacy::MechanismRequest request;
  request.data_size = kSamples;
  request.expected_batch = 5;
  request.clip = clip;
  request.clip_norm = 0.3;
  request.adaptive = {.quantile = 0.5, .rate = 0.2, .count_deviation = 2};
  request.sigma = sigma;
  request.delta = 1e-5;
  PrivateTraining privacy(make_mechanism(request));
  test.clipped.emplace();
  test.clipped->clip = clip;
  test.clipped->clip_norm = request.clip_norm;
  test.clipped->expected_batch = privacy.mechanism.expected_batch();
  test.clipped->noise_multiplier = privacy.mechanism.noise_deviation(1);
  TestRun run(test, std::move(ranks));
  privacy.sampling = {{1, 2, 3, 4, 5, 6, 7, 8}};
  privacy.clip_count = {{8, 7, 6, 5, 4, 3, 2, 1}};
  privacy.clip_norm = request.clip_norm;
  privacy.draws = 77;
  privacy.last_step = kSteps;
  Trained result;
  TrainEvents events;
  events.on_step = [&](const StepLine& line) {
    result.drawn.push_back(line.privacy->samples);
    result.losses.push_back(line.privacy->samples > 0 ? line.loss : 0);
    result.clip_norms.push_back(line.privacy->clip_norm);
  };
  TrainOptions options;
  options.steps = kSteps;
  options.learning_rate = [](int64_t) { return 0.1; };
  options.privacy = privacy;
  Trainer trainer(*run.executor, model == "dit-tiny" ? images() : make_text_feed(samples()),
                  nullptr, options, events);
  EXPECT_TRUE(trainer.run({}));
  for (size_t p = 0; p < run.executor->shape().params.size(); ++p)
    result.params.push_back(run.executor->parameter(static_cast<ParamId>(p)));
  return result;
}

TEST(PrivateRanks, ARunDrawsTheSameSamplesAndEndsAlikeWhateverTheWorldAndTheMicroBatch) {
  const int world = rank_info_from_environment().world;
  for (const auto& [model, clip] : {std::pair("llama-tiny", privacy::ClipFunction::abadi),
                                    {"llama-tiny", privacy::ClipFunction::adaptive},
                                    {"dit-tiny", privacy::ClipFunction::abadi}}) {
    const Trained alone = train(model, 1, Strategy::ddp, 1, clip, 0.8, {});
    std::vector<int64_t> expected;
    for (int step = 0; step < kSteps; ++step)
      expected.push_back(static_cast<int64_t>(
          privacy::poisson_draw({{1, 2, 3, 4, 5, 6, 7, 8}}, step, kSamples, 5.0 / kSamples)
              .size()));
    EXPECT_EQ(alone.drawn, expected);
    for (const auto& [strategy, micro_batch] :
         {std::pair{Strategy::ddp, int64_t{2}}, {Strategy::zero3, int64_t{3}}}) {
      const Trained mine = train(model, world, strategy, micro_batch, clip, 0.8, both_lanes());
      EXPECT_EQ(mine.drawn, alone.drawn);
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(mine.losses[step], alone.losses[step], 1e-9);
        EXPECT_NEAR(mine.clip_norms[step], alone.clip_norms[step], 1e-12);
      }
      for (size_t p = 0; p < mine.params.size(); ++p)
        EXPECT_LT(largest_difference(mine.params[p], alone.params[p]), 1e-9)
            << model << " " << name_of(clip) << " " << name_of(strategy) << " parameter " << p;
    }
  }
}

}  // namespace
}  // namespace veil::private_training_test
