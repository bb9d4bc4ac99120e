// Names that are not UTF-8: they cannot be stored in JSON, so a run with one would lose its first
// checkpoint, with the budget spent. Every command refuses them in one line before it does anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramPaths : public TrainingTest {
 protected:
  static constexpr const char* kLatin = "caf\xe9";  // ISO 8859-1
};

TEST_F(ProgramPaths, ThatAreNotUtf8AreRefusedByEveryOptionOfEveryCommand) {
  int tried = 0;
  for (const OptionTable& table : option_tables()) {
    for (const OptionRow& row : table.rows) {
      if (row.flag || row.number || !row.choices.empty()) continue;
      std::vector<std::string> words = split(table.command, ' ');
      words.push_back("--" + row.name + "=" + kLatin);
      testing::internal::CaptureStderr();
      const int code = run_veil(words);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_EQ(code, kExitUsage) << join(words, " ");
      EXPECT_EQ(said, "veil: the argument '--" + row.name +
                          "=caf\\xe9' is not UTF-8: allowed are names in UTF-8; rename the file\n");
      ++tried;
    }
  }
  EXPECT_GT(tried, 150);
}

TEST_F(ProgramPaths, OfTheWorkingFolderAndOfFilesInItAreToldBeforeTheFirstStep) {
  fs::create_directory(work() / kLatin);
  std::ofstream(work() / kLatin / "a.txt") << std::string(4000, 'x');
  const std::string train =
      "train --model llama-tiny --from-scratch --device cpu --seq-length 16 --held-out 0 --steps "
      "1 ";
  const auto before = entries();
  const Answer here = veil("version && cd " + std::string(kLatin) + " && '" + veil_program() +
                           "' " + train + "--data a.txt");
  EXPECT_EQ(here.code, kExitUsage);
  EXPECT_THAT(here.err, HasSubstr("the working folder '"));
  EXPECT_THAT(here.err, HasSubstr("caf\\xe9' is not UTF-8"));
  EXPECT_EQ(entries(), before);
  // Names inside a folder of data are read and shown, and are not stored.
  fs::create_directory(work() / "texts");
  fs::rename(work() / kLatin / "a.txt", work() / "texts" / (std::string(kLatin) + ".txt"));
  const Answer trained = veil(train + "--data texts --output-dir runs --export exported");
  EXPECT_EQ(trained.code, kExitDone) << trained.err;
  const Answer shown = veil("data texts --json figures.json");
  EXPECT_EQ(shown.code, kExitDone) << shown.err;
  EXPECT_EQ(find_invalid_utf8(shown.out), std::string::npos);
}

TEST_F(ProgramPaths, InATomlFileAreToldWithTheirLine) {
  std::ofstream(work() / "bad.toml") << "steps = 3\nmodel = \"" << kLatin << "\"\n";
  expect_refused("train --data texts --config bad.toml",
                 "bad.toml:2: byte 23 is not UTF-8: allowed is a TOML file in UTF-8");
}

TEST_F(ProgramPaths, EscapeCodesOfFilesDoNotReachTheTerminal) {
  std::ofstream(work() / "bad.jsonl") << "{\"text\": \"a\"}\n\x1b[31mno json\x07\n";
  std::ofstream(work() / "\x1b[2J.md") << "x";
  const Answer line = veil("data bad.jsonl");
  EXPECT_EQ(line.code, kExitUsage);
  EXPECT_EQ(line.err.find('\x1b'), std::string::npos) << line.err;
  const Answer name = veil("data $'\\x1b[2J.md'");
  EXPECT_EQ(name.code, kExitUsage);
  EXPECT_EQ(name.err.find('\x1b'), std::string::npos) << name.err;
}

// The settings that a run stores, its metrics and its traces are its owner's.
TEST_F(ProgramPaths, ARunsFolderIsItsOwnersWhateverTheUmask) {
  const Answer answer = veil(words("--steps 1 --output-dir runs"), "umask 000;");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  for (const auto& entry : fs::directory_iterator(work() / "runs"))
    EXPECT_EQ(entry.status().permissions(), fs::perms::owner_all) << entry.path();
}

}  // namespace
}  // namespace veil
