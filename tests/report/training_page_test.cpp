#include "report/training_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "report/test_records.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Folder;
using ::testing::HasSubstr;
using ::testing::Not;

// Losses fall by one per step; an evaluation after every tenth.
std::string metrics_text(int steps, bool is_private) {
  std::string text;
  for (int step = 1; step <= steps; ++step) {
    json line = {{"step", step},
                 {"loss", 1000.0 - step},
                 {"learning_rate", 0.5 / step},
                 {"tokens_per_second", 2000.0},
                 {"seconds", 0.5},
                 {"peak_memory_bytes", 3 << 20}};
    if (is_private) line["epsilon"] = 0.25 * step, line["clip_norm"] = 1.0;
    text += line.dump() + "\n";
    if (step % 10 == 0)
      text += json{{"step", step}, {"held_out_loss", 2000.5 - step}}.dump() + "\n";
  }
  return text;
}

bool others_can_read(const std::string& path) {
  return (fs::status(path).permissions() & (fs::perms::group_all | fs::perms::others_all)) !=
         fs::perms::none;
}

TEST(TrainingPage, ItHasACurveForEachFigureAndItsNumbersAreTheRuns) {
  Folder folder;
  folder.write("metrics.jsonl", metrics_text(20, true));
  folder.write("settings.json", "{\"model\": \"llama-<tiny>\"}");
  ASSERT_TRUE(holds_training(folder.path()));
  std::vector<std::string> names;
  for (const Plot& plot : training_plots(read_training(folder.path()))) {
    names.push_back(plot.name);
    EXPECT_THAT(plot.script, HasSubstr("'step'")) << plot.name;
  }
  EXPECT_THAT(names, ::testing::ElementsAre("loss", "learning_rate", "tokens_per_second", "epsilon",
                                            "memory"));
  const ReportFiles report = write_training_report(folder.path(), "");
  // The means of the first two steps and of the last two.
  EXPECT_THAT(report.summary,
              HasSubstr("fell from 998.5 to 980.5 in 20 steps, for an epsilon of at most 5.0000."));
  const std::string page = folder.read("index.html");
  EXPECT_THAT(page, HasSubstr("How did the training go?"));
  EXPECT_THAT(page, HasSubstr("llama-&lt;tiny&gt;"));
  EXPECT_THAT(page, HasSubstr("Not private"));
  const std::vector<std::string> csv = split(folder.read("summary.csv"), '\n');
  EXPECT_EQ(csv.at(1), "1,999,0.5,2000,0.5,3145728,0.25,");
  EXPECT_EQ(csv.at(21), "10,,,,,,,1990.5");
}

TEST(TrainingPage, APrivateRunsFiguresAreTheOwnersAlone) {
  for (const bool is_private : {false, true}) {
    Folder folder;
    folder.write("metrics.jsonl", metrics_text(4, is_private));
    write_training_report(folder.path(), "");
    for (const char* const name :
         {"index.html", "summary.txt", "summary.csv", "visualizations", ".veil_files.json"})
      EXPECT_EQ(others_can_read(folder.path(name)), !is_private) << name;
    EXPECT_EQ(folder.read("index.html").find("Not private") != std::string::npos, is_private);
    EXPECT_EQ(folder.read("index.html").find("Privacy spent") != std::string::npos, is_private);
  }
}

TEST(TrainingPage, ALongRunIsThinnedByMeansThatKeepTheTotal) {
  Folder folder;
  folder.write("metrics.jsonl", metrics_text(1000, false));
  const TrainingRun run = read_training(folder.path());
  EXPECT_EQ(run.steps.size(), 1000u);
  const std::string script = training_plots(run)[0].script;
  EXPECT_THAT(script, HasSubstr("\n2 998 0\n"));  // steps 1 to 3
  EXPECT_THAT(script, Not(HasSubstr("\n3 997 0\n")));
  EXPECT_LT(std::count(script.begin(), script.end(), '\n'), 600);
}

TEST(TrainingPage, DamagedLinesAreCountedAndAFolderWithoutAStepIsRefused) {
  Folder folder;
  folder.write("metrics.jsonl", metrics_text(3, false) + "{\"step\": 4, \"lo");
  EXPECT_EQ(read_training(folder.path()).damaged, 1);
  write_training_report(folder.path(), folder.path("out"));
  EXPECT_THAT(folder.read("out/index.html"),
              HasSubstr("1 line of metrics.jsonl could not be read"));
  EXPECT_FALSE(fs::exists(folder.path("index.html")));
  Folder empty;
  empty.write("metrics.jsonl", "");
  EXPECT_THROW(write_training_report(empty.path(), ""), UserError);
  EXPECT_FALSE(fs::exists(empty.path("index.html")));
}

TEST(TrainingPage, AFileThatVeilDidNotWriteStays) {
  Folder folder;
  folder.write("metrics.jsonl", metrics_text(3, true));
  folder.write("index.html", "mine");
  EXPECT_THROW(write_training_report(folder.path(), ""), UserError);
  EXPECT_EQ(folder.read("index.html"), "mine");
  EXPECT_FALSE(fs::exists(folder.path("visualizations")));
  // Its own page is written again.
  fs::remove(folder.path("index.html"));
  write_training_report(folder.path(), "");
  EXPECT_NO_THROW(write_training_report(folder.path(), ""));
}

}  // namespace
}  // namespace veil
