// Training as a library: what a program that links Veil calls.
#include "run/train.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_paths.h"
#include "data/test_folder.h"

namespace veil {
namespace {

class TrainLibrary : public data::FolderTest {
 protected:
  // Eight samples expected, two per micro-batch; the quick accountant.
  RunConfig config(const std::string& run) const {
    RunConfig config = training_config("llama-tiny");
    config.model.from_scratch = true;
    config.model.seq_length = 16;
    config.data.path = source_root() + "/examples/text";
    config.placement.device = DeviceKind::cpu;
    config.step.total_batch_size = 8;
    config.step.batch_size = 2;
    config.privacy.sigma = 1;
    config.privacy.delta = 1e-5;
    config.privacy.accountant = privacy::AccountantKind::rdp;
    config.privacy.secret_file = path("secret");
    config.training.steps = 5;
    config.training.checkpoint_every = 2;
    config.training.resume = path(run);
    std::filesystem::create_directories(path(run));
    return config;
  }
  void write_secret() const {
    RunSecret secret;
    for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(7 * i + 3);
    privacy::write_secret(path("secret"), secret);
  }
};

TEST_F(TrainLibrary, EventsTellEpsilonAndTheCheckpointIsReadBack) {
  write_secret();
  std::vector<double> spent;
  TrainingEvents events;
  events.on_step = [&](const StepEvent& event) {
    spent.push_back(event.line.privacy->epsilon);
    EXPECT_EQ(event.metrics["epsilon"].get<double>(), spent.back());
  };
  ::testing::internal::CaptureStdout();
  const TrainResult result = train(config("run"), events);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_TRUE(result.finished);
  ASSERT_EQ(spent.size(), 5u);
  EXPECT_TRUE(std::is_sorted(spent.begin(), spent.end()));
  ASSERT_TRUE(result.privacy);
  EXPECT_EQ(result.privacy->epsilon, spent.back());
  const TrainedModel trained = read_trained(config("run"), result.folder);
  EXPECT_EQ(trained.steps, 5);
  EXPECT_EQ(trained.state["settings"]["clip"], "abadi");
  EXPECT_FALSE(trained.parameters.empty());
}

TEST_F(TrainLibrary, AStoppedRunGoesOnWithTheSameBitsAndTheSameEpsilon) {
  write_secret();
  const TrainResult whole = train(config("whole"));
  int64_t done = 0;
  TrainingEvents events;
  events.on_step = [&](const StepEvent& event) { done = event.line.step; };
  events.stop = [&] { return done >= 3; };
  EXPECT_FALSE(train(config("parts"), events).finished);
  std::optional<PrivateStart> start;
  TrainingEvents resumed;
  resumed.on_start = [&](const TrainStart& facts) { start = facts.privacy; };
  const TrainResult parts = train(config("parts"), resumed);
  EXPECT_TRUE(parts.finished);
  EXPECT_TRUE(start && start->replays) << start->why_fresh;
  EXPECT_EQ(parts.privacy->epsilon, whole.privacy->epsilon);
  const TrainedModel one = read_trained(config("whole"), whole.folder),
                     other = read_trained(config("parts"), parts.folder);
  for (const auto& [name, tensor] : one.parameters)
    EXPECT_TRUE(at::equal(tensor, other.parameters.at(name))) << name;
}

TEST_F(TrainLibrary, AFieldThatDecidesBeginsAFreshNonce) {
  write_secret();
  int64_t done = 0;
  TrainingEvents events;
  events.on_step = [&](const StepEvent& event) { done = event.line.step; };
  events.stop = [&] { return done >= 2; };
  train(config("run"), events);
  RunConfig other = config("run");
  other.optimizer.weight_decay = 0.2;
  std::string why;
  TrainingEvents resumed;
  resumed.on_start = [&](const TrainStart& start) { why = start.privacy->why_fresh; };
  train(other, resumed);
  EXPECT_THAT(why, testing::HasSubstr("weight-decay is 0.2, it was 0.1"));
}

TEST_F(TrainLibrary, AnErrorNamesTheField) {
  RunConfig wrong = config("run");
  wrong.privacy.secret_file.clear();
  wrong.privacy.clip_norm = -1;
  EXPECT_EQ(data::complaint([&] { train(wrong); }), "clip_norm must be positive, got -1");
  wrong.privacy.clip_norm.reset();
  wrong.privacy.delta.reset();
  EXPECT_THAT(data::complaint([&] { train(wrong); }), testing::StartsWith("delta is missing"));
  EXPECT_TRUE(std::filesystem::is_empty(path("run")));
}

// Who sets what only a private run has must not get plain training by forgetting the noise.
TEST_F(TrainLibrary, PrivacyFieldsWithoutNoiseAreRefused) {
  RunConfig forgot = config("run");
  forgot.privacy.sigma.reset();
  forgot.privacy.secret_file.clear();
  EXPECT_EQ(data::complaint([&] { train(forgot); }),
            "delta belongs to a private run: pass `epsilon` or `sigma` too");
  forgot.privacy.delta.reset();
  forgot.privacy.clip_norm = 1;
  EXPECT_THAT(data::complaint([&] { train(forgot); }), testing::StartsWith("clip_norm belongs"));
  forgot.privacy.clip_norm.reset();
  forgot.privacy.clip = ClipFunction::psac;
  EXPECT_THAT(data::complaint([&] { train(forgot); }), testing::StartsWith("clip belongs"));
  EXPECT_TRUE(std::filesystem::is_empty(path("run")));
}

// Rank 1 has no journal and gets its keys from rank 0: without one its noise would be known.
TEST_F(TrainLibrary, ARankThatIsNoneOfItsWorldIsRefused) {
  write_secret();
  RankInfo second;
  second.rank = 1;
  EXPECT_EQ(data::complaint([&] { train(config("run"), {}, second); }),
            "rank 1 of 1: allowed are the ranks 0 to 0");
  second.world = 0;
  EXPECT_THAT(data::complaint([&] { train(config("run"), {}, second); }),
              testing::StartsWith("rank 1 of 0"));
  EXPECT_TRUE(std::filesystem::is_empty(path("run")));
}

TEST_F(TrainLibrary, NumbersThatNoOptionWouldAllowAreRefused) {
  RunConfig wrong = config("run");
  wrong.step.batch_size = 0;
  wrong.step.total_batch_size = 0;
  EXPECT_EQ(data::complaint([&] { train(wrong); }), "total_batch_size must be positive, got 0");
  wrong = config("run");
  wrong.step.accumulation = 0;
  EXPECT_EQ(data::complaint([&] { train(wrong); }), "accumulation must be positive, got 0");
  wrong = config("run");
  wrong.training.steps.reset();
  wrong.training.epochs = std::nan("");
  EXPECT_THAT(data::complaint([&] { train(wrong); }),
              testing::StartsWith("epochs must be positive"));
}

}  // namespace
}  // namespace veil
