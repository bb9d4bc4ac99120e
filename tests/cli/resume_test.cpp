// A run that is killed at a random moment and resumed ends with the parameters of one left alone.
// Label `resume`: it takes a minute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cli/training.h"
#include "comm/communicator.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr int kRuns = 20;
constexpr int kSteps = 24;
constexpr uint32_t kSeed = 20240607;

class ProgramResume : public TrainingTest {};

TEST_F(ProgramResume, KilledAtARandomMomentARunEndsWithTheSameParametersTwentyTimesOutOfTwenty) {
  std::mt19937 random(kSeed);
  std::map<std::string, std::string> left_alone;  // the weights' bytes, by settings
  int killed = 0, killed_while_saving = 0;
  for (int i = 0; i < kRuns; ++i) {
    const bool ranks = i % 4 == 3 && built_with_mpi(), twice = i % 3 == 2;
    const std::string settings =
        fmt::format("--steps {}{}{}", kSteps, i % 2 ? " --compute bf16" : "",
                    ranks ? " --ranks 2 --strategy zero3" : "");
    if (left_alone[settings].empty()) {
      ASSERT_EQ(veil(words(settings + " --output-dir alone --export left_alone --overwrite")).code,
                kExitDone);
      left_alone[settings] = weight_bytes(work() / "left_alone");
      ASSERT_FALSE(left_alone[settings].empty());
    }
    const fs::path run = work() / fmt::format("run{}", i),
                   exported = work() / fmt::format("model{}", i);
    fs::create_directory(run);
    const std::string line =
        words(settings + " --resume '" + run.string() + "' --export '" + exported.string() + "'");
    std::string moments;
    for (int kill = 0; kill < (twice ? 2 : 1); ++kill) {
      // Any step of those that are left, or the time before the first; then some milliseconds more.
      const size_t done = logged_steps(run).size(),
                   step = done + random() % (kSteps - std::min<size_t>(done, kSteps - 1));
      const auto later = std::chrono::microseconds(random() % (step == done ? 600000 : 15000));
      Child child(work(), line);
      if (step > done) wait_for_steps(child, run, step);
      std::this_thread::sleep_for(later);
      killed += child.runs();
      child.kill_all();
      bool saving = false;
      if (fs::exists(run / "checkpoints")) {
        for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
          saving |= entry.path().extension() == ".unfinished";
      }
      killed_while_saving += saving;
      moments +=
          fmt::format(" {} us after step {}{}", later.count(), step, saving ? " while saving" : "");
    }
    std::printf("run %2d: %s, killed%s\n", i, settings.c_str(), moments.c_str());
    std::fflush(stdout);
    const Answer answer = veil(line);
    ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
    EXPECT_TRUE(weight_bytes(exported) == left_alone[settings])
        << "run " << i << " ended with other parameters";
    EXPECT_EQ(logged_steps(run), steps_to(kSteps)) << "run " << i;
    EXPECT_EQ(logged_steps(run, "held_out_loss"), std::vector<int64_t>{kSteps}) << "run " << i;
    fs::remove_all(run);
    fs::remove_all(exported);
  }
  std::printf("seed %u: %d kills hit a live run, %d of them a checkpoint that was being written\n",
              kSeed, killed, killed_while_saving);
  EXPECT_GE(killed, kRuns);
}

}  // namespace
}  // namespace veil
