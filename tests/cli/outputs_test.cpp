// Every option that names an output, tried against files that Veil did not write.
#include <gmock/gmock.h>

#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramOutputs : public TrainingTest {
 protected:
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((work() / name).parent_path());
    std::ofstream(work() / name) << content;
  }
  // A folder of somebody's files, some under names that Veil writes.
  void write_foreign() const {
    for (const char* name :
         {"notes.txt", "notes.json", "picture.png", "model.tokens", "plot.png.gp",
          "mine/summary.txt", "mine/summary.csv", "mine/index.html", "mine/changes.md",
          "mine/config.json", "mine/metrics.jsonl", "mine/max_batch_sizes.txt", "mine/sweep.txt",
          "mine/trials/a.running.json", "mine/visualizations/time.png", "mine/a.json.1.2.tmp",
          "mine/checkpoints/step_00000001.unfinished/x", "data/a.txt", "data/b.txt"}) {
      write(name, std::string("somebody's ") + name);
    }
  }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(work())) {
      if (entry.is_regular_file())
        found[fs::relative(entry.path(), work()).string()] = text(entry.path());
    }
    return found;
  }
};

TEST_F(ProgramOutputs, NoOutputOptionChangesAFileThatVeilDidNotWrite) {
  write_foreign();
  const std::string train = words("--steps 1 --batch-size 2 ");
  const std::string own_data =
      "train --model llama-tiny --from-scratch --data data --seq-length 4 --held-out 0 --device "
      "cpu --steps 1 ";
  const std::string profile = "profile --preset tiny --device cpu --warmup 0 --iterations 1 ";
  const std::string privacy = "privacy epsilon --sigma 1 --q 0.01 --steps 10 --delta 1e-5 ";
  const std::string find =
      "find-batch --model llama-tiny --seq-length 8 --device cpu --max-batch 1 ";
  ASSERT_EQ(veil(profile + "--output records/one_result.json").code, kExitDone);
  ASSERT_EQ(veil(profile + "--output after/one_result.json").code, kExitDone);

  struct Row {
    std::string line, says;  // says "": the command may work, next to the foreign files
  };
  const Row rows[] = {
      {train + "--export mine", "no export of Veil"},
      {train + "--export mine --overwrite", "no export of Veil"},
      {train + "--export .", "no export of Veil"},
      {train + "--export notes.txt", "not a folder"},
      {own_data + "--export data --overwrite", "data"},
      {own_data + "--export data/model", "is inside the data"},
      {train + "--resume mine", "no run of `veil train`"},
      {own_data + "--resume data", "no run of `veil train`"},
      {train + "--output-dir mine", ""},
      {own_data + "--output-dir data", "inside the data"},
      {"data data --json notes.json", "notes.json"},
      {"data data --json data/a.txt", "a.txt"},
      {"tokenize data --output notes.txt", "notes.txt"},
      {"tokenize data --output data/a.txt", "a.txt"},
      {"tokenize data --output model.tokens", "model.tokens"},
      {"tokenize data --output new.tokens --json notes.json", "notes.json"},
      {profile + "--output notes.json", "notes.json"},
      {profile + "--output mine", "is a folder"},
      {profile + "--output-dir mine", ""},
      {privacy + "--json notes.json", "notes.json"},
      {privacy + "--json /dev/null", "not a regular file"},
      {privacy + "--plot picture.png", "picture.png"},
      {privacy + "--plot plot.png", "plot.png.gp"},
      {"privacy sigma --epsilon 1 --q 0.01 --steps 10 --delta 1e-5 --json notes.json",
       "notes.json"},
      {"verify --device cpu --model llama-tiny --mode flash --output notes.json", "notes.json"},
      {"report records --output-dir mine", "summary.txt"},
      {"report records after --output-dir mine", "changes.md"},
      {find + "--output-dir mine", "max_batch_sizes.txt"},
      {find + "--output-dir mine/visualizations/../../data", ""},
      {"suite linear --preset tiny --device cpu --input-size 16 --batch-size 4 --iterations 1 "
       "--warmup 0 --resume mine",
       "Veil did not write"},
      {"doctor --json notes.json", "notes.json"},
      {"fetch org/name --endpoint http://127.0.0.1:1 --json notes.json", "notes.json"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.line);
    const auto before = contents();
    const Answer answer = veil(row.line);
    if (row.says.empty()) {
      EXPECT_EQ(answer.code, kExitDone) << answer.err;
    } else {
      EXPECT_NE(answer.code, kExitDone);
      EXPECT_EQ(answer.complaints(), 1) << answer.err;
      EXPECT_THAT(answer.err, HasSubstr(row.says));
    }
    const auto after = contents();
    for (const auto& [name, content] : before) {
      ASSERT_EQ(after.count(name), 1u) << name << " is gone";
      EXPECT_EQ(after.at(name), content) << name;
    }
  }
}

TEST_F(ProgramOutputs, WhatVeilWroteIsReplacedByTheNextRun) {
  const std::string lines[] = {
      "privacy epsilon --sigma 1 --q 0.01 --steps 10 --delta 1e-5 --json privacy.json",
      "tokenize data --output data.tokens --json counts.json",
      "doctor --json doctor.json",
      "profile --preset tiny --device cpu --warmup 0 --iterations 1 --output "
      "records/one_result.json",
      "report records",
      "report records --output-dir records/visualizations",
      "find-batch --model llama-tiny --seq-length 8 --device cpu --max-batch 1 --output-dir found"};
  write("data/a.txt", "some text");
  for (int round = 0; round < 2; ++round) {
    for (const std::string& line : lines) {
      const Answer answer = veil(line);
      EXPECT_EQ(answer.code, kExitDone) << line << "\n" << answer.err;
    }
  }
}

TEST_F(ProgramOutputs, OverwriteReplacesAFileAndAnExportOnly) {
  write("notes.json", "mine");
  const std::string privacy = "privacy epsilon --sigma 1 --q 0.01 --steps 10 --delta 1e-5 ";
  EXPECT_EQ(veil(privacy + "--json notes.json --overwrite").code, kExitDone);
  EXPECT_EQ(read(work() / "notes.json")["written_by"].get<std::string>(), "veil");

  const std::string train = words("--steps 1 --batch-size 2 --export model ");
  ASSERT_EQ(veil(train).code, kExitDone);
  write("model/mine.txt", "mine");
  const std::string weights = weight_bytes(work() / "model");
  expect_refused(train + "--seed 5", "holds an earlier export");
  EXPECT_EQ(weight_bytes(work() / "model"), weights);
  ASSERT_EQ(veil(train + "--seed 5 --overwrite").code, kExitDone);
  EXPECT_NE(weight_bytes(work() / "model"), weights);
  EXPECT_EQ(text(work() / "model/mine.txt"), "mine");
}

TEST_F(ProgramOutputs, AResumedRunReplacesItsOwnExportAndNoOther) {
  const std::string train = words("--steps 2 --batch-size 2 --output-dir mine --export model ");
  ASSERT_EQ(veil(train).code, kExitDone);
  const Answer again = veil(train + "--resume latest");
  EXPECT_EQ(again.code, kExitDone) << again.err;
  ASSERT_EQ(veil(words("--steps 2 --batch-size 2 --output-dir other ")).code, kExitDone);
  expect_refused(
      words("--steps 2 --batch-size 2 --output-dir other --resume latest ") + "--export model",
      "holds an earlier export");
}

TEST_F(ProgramOutputs, APictureOfSamplesReplacesNothing) {
  ASSERT_EQ(veil("train --model dit-tiny --from-scratch --device cpu --shapes 16 --held-out 0 "
                 "--batch-size 4 "
                 "--steps 1 --export model")
                .code,
            kExitDone);
  write("picture.png", "mine");
  const std::string line = "sample --model model --device cpu --each 1 --steps 2 --classes 0 ";
  expect_refused(line + "--output picture.png", "picture.png");
  EXPECT_EQ(text(work() / "picture.png"), "mine");
  ASSERT_EQ(veil(line + "--output picture.png --overwrite").code, kExitDone);
  EXPECT_NE(text(work() / "picture.png"), "mine");
}

}  // namespace
}  // namespace veil
