#include "suite/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "report/test_records.h"

namespace veil::suite_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Suite, EveryOneHasANameAHelpAQuestionAndExperiments) {
  std::set<std::string> names, questions;
  for (Suite& suite : suites()) {
    EXPECT_TRUE(names.insert(suite.name).second) << suite.name;
    EXPECT_TRUE(questions.insert(suite.page.question).second) << suite.name;
    EXPECT_FALSE(suite.help.empty()) << suite.name;
    const std::vector<Experiment> experiments = suite.experiments({"--seed", "7"});
    EXPECT_GT(experiments.size(), 1u) << suite.name;
    for (const Experiment& experiment : experiments) {
      ASSERT_GT(experiment.arguments.size(), 2u) << experiment.name;
      EXPECT_EQ(experiment.arguments.back(), "7") << experiment.name;
    }
  }
  EXPECT_EQ(find_suite("LLAMA3_DP").name, "llama3-dp");
}

TEST(Suite, AnUnknownNameIsAnsweredWithTheNearest) {
  try {
    find_suite("liner");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean linear?"));
  }
}

TEST(Suite, EveryCallHasSettingsOfItsOwn) {
  const Suite one = find_suite("zero"), other = find_suite("zero");
  std::get<std::vector<int64_t>*>(one.options.at(1).field)->assign({3});
  EXPECT_EQ(one.experiments({}).size(), 6u);
  EXPECT_EQ(other.experiments({}).size(), 24u);
}

TEST(Suite, AListKeepsBackTheSettingThatItReplacesUnlessItIsEmpty) {
  const Suite suite = find_suite("dit-dp");
  EXPECT_THAT(suite.kept_back(), ::testing::Not(::testing::Contains("model")));
  std::get<std::vector<std::string>*>(suite.options.at(1).field)->push_back("dit-tiny");
  EXPECT_THAT(suite.kept_back(), ::testing::Contains("model"));
}

TEST(Suite, TheCheckpointingSuiteComparesTheThreeKinds) {
  std::vector<std::string> kinds;
  for (const Experiment& experiment : find_suite("checkpointing").experiments({}))
    kinds.push_back(experiment.arguments.at(1));
  EXPECT_THAT(kinds, ElementsAre("none", "selective", "full"));
}

// A suite needs no more than a page in the list to be reported as it wants.
TEST(Suite, APageOfOnesOwnDecidesQuestionTablePlotsVerdictAndFiles) {
  SuitePage page;
  page.suite = "own";
  page.question = "Is it mine?";
  page.table = [](const std::vector<Record>& records) {
    Table table({"who"});
    for (const Record& record : records) table.row({record.experiment});
    return table;
  };
  page.plots = {time_plot};
  page.verdict = [](const RecordFolder& folder) {
    Verdict verdict;
    verdict.headline = "It is, " + std::to_string(folder.records.size()) + " times.";
    verdict.caveats = {"A caveat of its own."};
    return verdict;
  };
  page.more_tables = [](const std::vector<Record>&) -> std::vector<PageTable> {
    return {{"A section", "with a caption", Table({"a"})}};
  };
  page.more_files = [](const RecordFolder&) -> std::vector<ReportFile> {
    return {{"own.csv", "a,b\n"}};
  };
  test::Folder folder;
  std::vector<json> records = test::linear_suite_records();
  for (json& record : records) record["suite"] = "own";
  folder.write_records(records);
  const ReportFiles report = write_report(folder.path(), "", {page});
  EXPECT_THAT(report.summary, ::testing::StartsWith("Is it mine?\nIt is, 4 times.\n\nwho"));
  EXPECT_THAT(report.summary, HasSubstr("A caveat of its own."));
  EXPECT_THAT(report.summary, HasSubstr("simulated world of 8"));  // true of any folder
  EXPECT_EQ(folder.read("own.csv"), "a,b\n");
  EXPECT_THAT(folder.read("index.html"), HasSubstr("with a caption"));
  EXPECT_TRUE(std::filesystem::exists(folder.path("visualizations/time_comparison.gp")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("visualizations/memory_stages.gp")));

  // Without its page in the list the same records are shown as any others.
  EXPECT_THAT(write_report(folder.path(), folder.path("general"), {}).summary,
              HasSubstr("Which set-up, for my memory and my time?"));
}

}  // namespace
}  // namespace veil::suite_test
