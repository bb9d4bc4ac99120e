// Files that an earlier version wrote are read by this one: tests/fixtures has a run and an export
// in each version of the formats (scripts/make_fixtures.sh makes them, CHANGELOG.md lists the
// numbers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramFormats : public TrainingTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // The fixture's files are in the working folder, readable by their owner alone.
  void SetUp() override {
    fs::copy(fs::path(source_root()) / "tests" / "fixtures" / GetParam(), work(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    fs::permissions(work() / "run" / "secret", fs::perms::owner_read | fs::perms::owner_write);
  }
};

TEST_P(ProgramFormats, ACheckpointHoldsTheWeightsThatWereExported) {
  const Answer answer = veil("train --resume run --export again");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("resumed   after step 2"));
  EXPECT_TRUE(weight_bytes(work() / "again") == weight_bytes(work() / "exported"));
  const Json before = read(work() / "exported" / "privacy.json"),
             now = read(work() / "again" / "privacy.json");
  EXPECT_EQ(now["steps"], 2);
  EXPECT_EQ(now["epsilon"], before["epsilon"]);
}

// In another place it is a copy, whose steps stay counted.
TEST_P(ProgramFormats, ARunGoesOnUnderAFreshNonceWithItsStepsCounted) {
  const std::string nonce = read(work() / "run" / "ledger.json")["nonce"].get<std::string>();
  const Answer answer = veil("train --resume run --steps 4 --export longer");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("resumed   after step 2"));
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for this folder is a copy"));
  EXPECT_NE(read(work() / "run" / "ledger.json")["nonce"].get<std::string>(), nonce);
  const Json statement = read(work() / "longer" / "privacy.json");
  EXPECT_EQ(statement["steps"], 4);
  EXPECT_EQ(statement["events"].size(), 2u);
  EXPECT_FALSE(weight_bytes(work() / "longer") == weight_bytes(work() / "exported"));
}

TEST_P(ProgramFormats, AnExportIsTrainedOnAndItsEpsilonCounts) {
  const Answer answer = veil(
      "train --model exported --data data.jsonl --tokenizer bytes --seq-length 12 --device cpu "
      "--held-out 0 --sigma 1 --delta 1e-3 --accountant rdp --total-batch-size 4 --steps 1 "
      "--output-dir runs --export second");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json first = read(work() / "exported" / "privacy.json"),
             second = read(work() / "second" / "privacy.json");
  EXPECT_EQ(second["base"], first);
  EXPECT_GT(second["epsilon"].get<double>(), first["epsilon"].get<double>());
}

TEST_P(ProgramFormats, ADamagedLedgerOrCheckpointOfItIsStillFound) {
  const std::string rank = "run/checkpoints/step_00000002/rank_00000.safetensors";
  std::ofstream(work() / "run" / ".lock");  // every run that was used has one
  for (const std::string& name : {std::string("run/ledger.json"), rank}) {
    const std::string whole = text(work() / name);
    std::string flipped = whole;
    flipped[flipped.size() - 9] ^= 1;
    std::ofstream(work() / name, std::ios::binary) << flipped;
    expect_refused("train --resume run --steps 4 --learning-rate 0.01 --export again", name);
    std::ofstream(work() / name, std::ios::binary) << whole;
  }
}

// By the numbers of the checkpoint's state and of the ledger.
INSTANTIATE_TEST_SUITE_P(Of, ProgramFormats, ::testing::Values("state1_ledger2"),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace veil
