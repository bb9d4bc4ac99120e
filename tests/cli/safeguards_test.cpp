// Runs that cannot work are refused or warned about, and no option is ignored in silence.
#include <gmock/gmock.h>

#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgramSafeguards : public TrainingTest {
 protected:
  static constexpr const char* kPrivate =
      "--sigma 1 --delta 1e-5 --accountant rdp --steps 1 --batch-size 4 ";
  // Documents of so many letters each.
  void write_documents(const std::vector<int>& sizes) const {
    fs::create_directories(work() / "data");
    for (size_t i = 0; i < sizes.size(); ++i)
      std::ofstream(work() / "data" / ("text" + std::to_string(i) + ".txt"))
          << std::string(static_cast<size_t>(sizes[i]), static_cast<char>('a' + i % 26));
  }
  static std::string on_documents(const std::string& more) {
    return "train --model llama-tiny --from-scratch --data data --held-out 0 --seq-length 8 "
           "--device cpu " +
           more;
  }
};

TEST_F(ProgramSafeguards, ADeltaOfOneOverTheSamplesIsRefused) {
  write_documents({8, 8, 8, 8});
  expect_refused(on_documents("--sigma 1 --delta 0.25 --steps 1 --batch-size 2"),
                 "--delta 0.25: allowed is less than 1 / 4");
  EXPECT_EQ(veil(on_documents("--sigma 1 --delta 0.2 --steps 1 --batch-size 2")).code, kExitDone);
}

TEST_F(ProgramSafeguards, TextThatTheSequenceLengthCutsOffIsCounted) {
  write_documents({4, 20, 30});  // and an end of text each: 5, 21, 31; a sample reads 9
  const Answer cut = veil(on_documents(std::string(kPrivate) + "--total-batch-size 2"));
  ASSERT_EQ(cut.code, kExitDone) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("2 of 3 documents are longer than --seq-length 8: 34 of 57 "
                                 "tokens are cut off"));
  const Answer whole =
      veil(on_documents(std::string(kPrivate) + "--samples packed --total-batch-size 2"));
  EXPECT_THAT(whole.err, Not(HasSubstr("cut off")));
}

TEST_F(ProgramSafeguards, TheUnitIsTheDocumentUnlessPackedSequencesAreAskedFor) {
  write_documents({4, 20, 30});
  const std::string run = std::string(kPrivate) + "--total-batch-size 2 ";
  const Answer document = veil(on_documents(run + "--export a"));
  ASSERT_EQ(document.code, kExitDone) << document.err;
  const Json by_document = read(work() / "a" / "privacy.json");
  EXPECT_EQ(by_document["unit"].get<std::string>(), "document");
  EXPECT_EQ(by_document["unit_is"].get<std::string>(), "document, one sequence of up to 8 tokens");
  EXPECT_THAT(document.err, Not(HasSubstr("mix documents")));

  const Answer packed = veil(on_documents(run + "--samples packed --export b"));
  ASSERT_EQ(packed.code, kExitDone) << packed.err;
  const Json by_sequence = read(work() / "b" / "privacy.json");
  EXPECT_EQ(by_sequence["unit"].get<std::string>(), "sample");
  EXPECT_EQ(by_sequence["unit_is"].get<std::string>(), "packed sequence of 8 tokens");
  EXPECT_THAT(packed.err, HasSubstr("packed sequences mix documents"));
  EXPECT_THAT(packed.err, HasSubstr("--samples document"));
}

TEST_F(ProgramSafeguards, NoiseThatDrownsTheSignalIsNamedWithItsRatio) {
  write_documents(std::vector<int>(26, 8));
  const Answer loud = veil(on_documents(std::string(kPrivate) + "--total-batch-size 4"));
  ASSERT_EQ(loud.code, kExitDone) << loud.err;
  EXPECT_THAT(loud.err, ::testing::ContainsRegex("noise drowns the signal: .* [0-9]+ times .*"
                                                 "raise --total-batch-size to [0-9]+"));
  const Answer few_documents =
      veil(on_documents("--sigma 9 --delta 1e-5 --steps 1 --batch-size 4 --total-batch-size 4"));
  ASSERT_EQ(few_documents.code, kExitDone) << few_documents.err;
  EXPECT_THAT(few_documents.err, HasSubstr("no batch of this data is large enough: train fewer "
                                           "parameters (--lora), or allow a smaller --sigma"));
  const Answer few = veil(
      on_documents(std::string(kPrivate) + "--total-batch-size 4 --train-only model.norm.weight"));
  ASSERT_EQ(few.code, kExitDone) << few.err;
  EXPECT_THAT(few.err, Not(HasSubstr("noise drowns")));
}

// Noise grows with the batch where epsilon is given: what is advised must be enough all the same.
TEST_F(ProgramSafeguards, TheAdvisedBatchIsNotDrowned) {
  write_documents(std::vector<int>(90, 8));
  const std::string line =
      "--epsilon 2 --delta 1e-5 --accountant rdp --steps 3 --train-only 'model.layers.0.*' "
      "--batch-size 2 --total-batch-size ";
  const Answer loud = veil(on_documents(line + "4"));
  ASSERT_EQ(loud.code, kExitDone) << loud.err;
  const std::string advice = "raise --total-batch-size to ";
  const size_t at = loud.err.find(advice);
  ASSERT_NE(at, std::string::npos) << loud.err;
  const int batch = std::stoi(loud.err.substr(at + advice.size()));
  EXPECT_GT(batch, 4);
  EXPECT_LT(batch, 90);
  // An adaptive count's noise grows with the batch too, and shuffled batches are whole.
  for (const char* way : {" --clip adaptive", " --sampler shuffled"}) {
    const Answer other = veil(on_documents(line + "6" + way));
    ASSERT_EQ(other.code, kExitDone) << other.err;
    EXPECT_THAT(other.err, ::testing::ContainsRegex("raise --total-batch-size to [1-8]?[0-9] "))
        << way;
  }
  const Answer heard = veil(on_documents(line + std::to_string(batch)));
  ASSERT_EQ(heard.code, kExitDone) << heard.err;
  EXPECT_THAT(heard.err, Not(HasSubstr("noise drowns")));
}

TEST_F(ProgramSafeguards, AMicroBatchMeansTheSameInPlainAndPrivateRuns) {
  write_documents(std::vector<int>(26, 40));
  const std::string batch = "--steps 1 --total-batch-size 16 --batch-size 4 --json ";
  const Answer plain = veil(on_documents(batch + "--output-dir plain"));
  ASSERT_EQ(plain.code, kExitDone) << plain.err;
  const Answer separate = veil(on_documents(batch + "--sigma 1 --delta 1e-5 --output-dir private"));
  ASSERT_EQ(separate.code, kExitDone) << separate.err;
  for (const char* folder : {"plain", "private"}) {
    const fs::path run = fs::directory_iterator(work() / folder)->path();
    const Json settings = read(run / "checkpoints" / "step_00000001" / "state.json")["settings"];
    EXPECT_EQ(settings["batch-size"].get<int64_t>(), 4) << folder;
    EXPECT_EQ(settings["accumulation"].get<int64_t>(), 4) << folder;
  }
  expect_refused(on_documents("--steps 1 --total-batch-size 10 --batch-size 4"), "multiples of 4");
}

TEST_F(ProgramSafeguards, AStepThatNeedsMoreMemoryThanThereIsIsToldBefore) {
  const Answer answer = veil(words("--steps 1 --batch-size 200000000"));
  EXPECT_EQ(answer.code, kExitFailed);
  EXPECT_EQ(answer.complaints(), 1) << answer.err;
  EXPECT_THAT(answer.err,
              AllOf(HasSubstr("out of memory: a step needs about"),
                    HasSubstr("of host memory are available"), HasSubstr("; try --batch-size "),
                    HasSubstr(", fits, "), HasSubstr("--ignore-memory")));
}

TEST_F(ProgramSafeguards, AnOptionThatWouldBeIgnoredIsAnError) {
  write_documents({20, 20, 20});
  const std::string profile = "profile --model llama-tiny --seq-length 8 --device cpu ";
  expect_refused(profile + "--rule flash", "--rule belongs to a private step");
  expect_refused(profile + "--pass-plan keep", "--pass-plan belongs to a private step");
  expect_refused(profile + "--memory-budget 4", "--memory-budget belongs to a private step");
  expect_refused("plan --simulate-world 4 --world 2", "--simulate-world 4 with --world 2");
  EXPECT_EQ(veil("plan --preset tiny --clip --rule flash").code, kExitDone);
  expect_refused(on_documents("--label-names good,bad"), "--label-names");
  expect_refused("tokenize data --labels good,bad", "--label-key");
  for (const std::string& command :
       {profile, std::string("find-batch --model llama-tiny --seq-length 8 --device cpu "),
        std::string("suite linear --preset tiny --device cpu "), on_documents("--steps 1 ")}) {
    expect_refused(command + "--learning-rate -1", "--learning-rate -1: allowed is 0 or more");
    expect_refused(command + "--momentum 1", "--momentum 1: allowed is from 0 to less than 1");
  }
  expect_refused(on_documents("--steps 1 --beta1 1"),
                 "--beta1 1: allowed is from 0 to less than 1");
  expect_refused(on_documents("--steps 1 --beta2 1"),
                 "--beta2 1: allowed is from 0 to less than 1");
}

}  // namespace
}  // namespace veil
