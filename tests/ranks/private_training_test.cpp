// A private training run is one run whatever the world: the same samples are drawn, padding and
// sharing change nothing, and the noise is the same.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/launch.h"
#include "engine/test_run.h"
#include "privacy/sampler.h"
#include "ranks/rank_harness.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace veil::private_training_test {
namespace {

constexpr int64_t kTokens = 12, kSamples = 40;
constexpr int64_t kUsers = 12;
constexpr int kSteps = 6;

std::shared_ptr<const data::Samples> samples(int64_t count = kSamples) {
  data::StoreHeader header;
  header.tokenizer.name = "numbers";
  header.tokenizer.vocabulary_size = 37;
  data::StoreInMemory memory(header);
  for (int64_t document = 0; document < count; ++document) {
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

// The 40 samples by 12 users, of whom the last owns 18.
constexpr int64_t kWithoutLast = 2 * (kUsers - 1);  // samples
std::shared_ptr<const data::Users> users(int64_t count) {
  data::Owners owners;
  std::vector<int64_t> items;
  for (int64_t sample = 0; sample < count; ++sample) {
    owners.add(std::to_string(std::min<int64_t>(sample / 2, kUsers - 1)));
    items.push_back(sample);
  }
  return std::make_shared<const data::Users>(owners, items);
}

struct Draws {
  bool users = false;      // they are drawn, instead of samples
  int64_t most = 0;        // 0: no maximum
  bool exchanged = false;  // gradients are kept, and ranks send each other those
  int64_t samples = kSamples;
  int64_t first = 0, steps = kSteps;
};

Trained train(const std::string& model, int world, Strategy strategy, int64_t micro_batch,
              privacy::ClipFunction clip, double sigma, Ranks ranks, Draws draws = {}) {
  TestCase test;
  test.model = model;
  test.tokens = kTokens;
  test.batch = micro_batch;
  test.step.world = world;
  test.step.strategy = strategy;
  test.step.varying = draws.most == 0;
  if (draws.most > 0)
    test.step.micro_batches =
        static_cast<int>(privacy::micro_batches_for(draws.most, micro_batch, world));
  test.optimizer.kind = OptimizerKind::sgd;
  test.clipped.emplace();
  if (draws.exchanged) {
    test.clipped->pass = privacy::PassKind::keep;
    test.step.exchange = Exchange::kept;
  }
  privacy::MechanismRequest request;
  request.data_size = draws.users ? kUsers : kSamples;
  if (draws.users) {
    request.unit = privacy::PrivacyUnit::user;
    request.users_are_drawn = true;
  }
  if (draws.most > 0) request.maximum = {.most = draws.most};
  request.expected_batch = 5;
  request.clip = clip;
  request.clip_norm = 0.3;
  request.adaptive = {.quantile = 0.5, .rate = 0.2, .count_deviation = 2};
  request.sigma = sigma;
  request.delta = 1e-5;
  PrivateTraining privacy(make_mechanism(request));
  test.clipped->clip = clip;
  test.clipped->clip_norm = request.clip_norm;
  test.clipped->expected_batch = privacy.mechanism.expected_batch();
  test.clipped->noise_multiplier = privacy.mechanism.noise_deviation(1);
  TestRun run(test, std::move(ranks));
  EXPECT_EQ(run.executor->schedule().exchanges(), draws.exchanged && world > 1);
  privacy.sampling = {{1, 2, 3, 4, 5, 6, 7, 8}};
  privacy.clip_count = {{8, 7, 6, 5, 4, 3, 2, 1}};
  privacy.clip_norm = request.clip_norm;
  privacy.draws = 77;
  if (draws.users) privacy.users = users(draws.samples);
  privacy.last_step = draws.steps;
  Trained result;
  TrainEvents events;
  events.on_step = [&](const StepLine& line) {
    result.drawn.push_back(line.privacy->samples);
    result.losses.push_back(line.privacy->samples > 0 ? line.loss : 0);
    result.clip_norms.push_back(line.privacy->clip_norm);
  };
  TrainOptions options;
  options.steps = draws.steps;
  options.learning_rate = [](int64_t) { return 0.1; };
  options.privacy = privacy;
  Trainer trainer(*run.executor,
                  model == "dit-tiny" ? images() : make_text_feed(samples(draws.samples)), nullptr,
                  options, events);
  EXPECT_TRUE(trainer.run({0, draws.first}));
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
    for (const auto& [strategy, micro_batch, exchanged] : {std::tuple{Strategy::ddp, 2, false},
                                                           {Strategy::zero3, 3, false},
                                                           {Strategy::zero2, 1, true},
                                                           {Strategy::zero3, 2, true}}) {
      const Trained mine = train(model, world, strategy, micro_batch, clip, 0.8, both_lanes(),
                                 {.exchanged = exchanged});
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

// Users, and draws that are cut: who is drawn and which of their samples comes is the same in every
// world, and so is what is left of a draw that is too large.
TEST(PrivateRanks, UsersAndCutDrawsAreTheSameInEveryWorldAndEndAlike) {
  const int world = rank_info_from_environment().world;
  const ChaChaKey key{{1, 2, 3, 4, 5, 6, 7, 8}};
  for (const auto& [model, draws] : {std::pair("llama-tiny", Draws{.users = true}),
                                     {"llama-tiny", Draws{.most = 4}},
                                     {"llama-tiny", Draws{.users = true, .most = 5}},
                                     {"dit-tiny", Draws{.users = true}}}) {
    const auto clip = privacy::ClipFunction::abadi;
    const Trained alone = train(model, 1, Strategy::ddp, 1, clip, 0.8, {}, draws);
    std::vector<int64_t> expected;
    int64_t cut = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t units = draws.users ? kUsers : kSamples;
      const int64_t drawn =
          std::ssize(privacy::poisson_draw(key, step, units, 5.0 / static_cast<double>(units)));
      expected.push_back(draws.most > 0 ? std::min(drawn, draws.most) : drawn);
      cut += draws.most > 0 && drawn > draws.most;
    }
    EXPECT_EQ(alone.drawn, expected);
    EXPECT_TRUE(draws.most == 0 || cut > 0) << "no draw is cut: choose another key";
    for (const auto& [strategy, micro_batch] :
         {std::pair{Strategy::ddp, int64_t{2}}, {Strategy::zero3, int64_t{3}}}) {
      const Trained mine =
          train(model, world, strategy, micro_batch, clip, 0.8, both_lanes(), draws);
      EXPECT_EQ(mine.drawn, alone.drawn);
      for (size_t p = 0; p < mine.params.size(); ++p)
        EXPECT_LT(largest_difference(mine.params[p], alone.params[p]), 1e-9)
            << model << " " << name_of(strategy) << " parameter " << p;
    }
  }
}

// Neighbours that differ in a user with 18 samples: a step without noise moves by lr C / E at most,
// and by something exactly if the user is drawn.
TEST(PrivateRanks, AUserMovesAStepByNoMoreThanOneClippedGradient) {
  const int world = rank_info_from_environment().world;
  int moved = 0;
  for (int64_t step = 0; step < 8; ++step) {
    const auto one_step = [&](int64_t count) {
      return train("llama-tiny", world, Strategy::ddp, 2, privacy::ClipFunction::abadi, 0,
                   both_lanes(), {.users = true, .samples = count, .first = step, .steps = 1});
    };
    const Trained with = one_step(kSamples), without = one_step(kWithoutLast);
    double squared = 0;
    for (size_t p = 0; p < with.params.size(); ++p) {
      const double distance = (with.params[p] - without.params[p]).norm().item<double>();
      squared += distance * distance;
    }
    const double bound = 0.1 * 0.3 / 5;  // the learning rate, C and E of train()
    EXPECT_LE(std::sqrt(squared), bound * (1 + 1e-9)) << "step " << step;
    EXPECT_EQ(with.drawn[0] - without.drawn[0], squared > 0 ? 1 : 0) << "step " << step;
    moved += squared > 0;
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 8);
}

// A maximum that no draw reaches fills every step up with padding, which weighs nothing.
TEST(PrivateRanks, PaddingUpToAMaximumChangesNoStep) {
  const int world = rank_info_from_environment().world;
  const auto clip = privacy::ClipFunction::adaptive;
  const Trained plain = train("llama-tiny", 1, Strategy::ddp, 2, clip, 0.8, {});
  const Trained padded =
      train("llama-tiny", world, Strategy::zero2, 2, clip, 0.8, both_lanes(), {.most = 33});
  const Trained exchanged = train("llama-tiny", world, Strategy::zero3, 2, clip, 0.8, both_lanes(),
                                  {.most = 33, .exchanged = true});
  for (const Trained& filled : {padded, exchanged}) {
    EXPECT_EQ(filled.drawn, plain.drawn);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(filled.clip_norms[step], plain.clip_norms[step], 1e-12);
    for (size_t p = 0; p < plain.params.size(); ++p)
      EXPECT_LT(largest_difference(filled.params[p], plain.params[p]), 1e-9) << p;
  }
}

}  // namespace
}  // namespace veil::private_training_test
