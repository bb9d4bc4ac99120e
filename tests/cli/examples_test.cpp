// The files in examples/, each run in a small version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_paths.h"
#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramExamples : public TrainingTest {
 protected:
  static std::string config(const std::string& name) {
    return " --config '" + source_root() + "/examples/" + name + "' --device cpu ";
  }
  static std::string example_data(const std::string& name) {
    return " --data '" + source_root() + "/examples/" + name + "' ";
  }
  void expect_runs(const std::string& line) const {
    const Answer answer = veil(line);
    ASSERT_EQ(answer.code, kExitDone) << line << "\n" << answer.err;
  }
};

TEST_F(ProgramExamples, AFolderIsTunedPrivately) {
  expect_runs(words("--steps 2 --export pretrained"));  // as a hub would have it
  expect_runs("train" + config("private_finetuning.toml") + example_data("reviews") +
              "--model pretrained --seq-length 32 --total-batch-size 32 --epochs 0.2");
  EXPECT_TRUE(fs::exists(work() / "tuned" / "model.safetensors"));
  const Json guarantee = read(work() / "tuned" / "privacy.json");
  EXPECT_LE(guarantee["epsilon"].get<double>(), 8);
  EXPECT_EQ(guarantee["delta"].get<double>(), 1e-6);
}

TEST_F(ProgramExamples, AClassifierIsTrained) {
  const Answer answer = veil("train" + config("classification.toml") + example_data("reviews") +
                             "--epochs 1 --seq-length 32");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("accuracy"));
}

TEST_F(ProgramExamples, ADiffusionTransformerIsTrainedAndSampled) {
  expect_runs("train" + config("diffusion.toml") + "--steps 2 --batch-size 2 --shapes 32");
  expect_runs("sample --model shapes_model --each 1 --steps 2 --device cpu --output shapes.png");
  EXPECT_TRUE(fs::exists(work() / "shapes.png"));
}

TEST_F(ProgramExamples, ASuiteIsRun) {
  expect_runs("suite llama3-dp" + config("suite.toml") +
              "--model llama-tiny --mode no_dp,auto --seq-length 8,16 --iterations 1 --warmup 0 "
              "--repeat 1");
  int records = 0;
  for (const auto& entry : fs::recursive_directory_iterator(work() / "results"))
    records += entry.path().filename().string().ends_with("_result.json");
  EXPECT_EQ(records, 4);
}

// Options that are renamed or removed are found by parsing all of a file's keys; --dry-run for the
// sizes that take long.
TEST_F(ProgramExamples, EveryFileIsReadAsItStands) {
  for (const char* const name : {"classification.toml", "diffusion.toml"}) {
    const Answer answer = veil("train" + config(name) + "--dry-run" +
                               (name[0] == 'c' ? example_data("reviews") : std::string()));
    EXPECT_EQ(answer.code, kExitDone) << name << answer.err;
  }
  EXPECT_EQ(veil("suite llama3-dp" + config("suite.toml") + "--dry-run").code, kExitDone);
}

}  // namespace
}  // namespace veil
