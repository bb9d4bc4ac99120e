#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "cli/command.h"

namespace veil::privacy_test {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct Answer {
  int code;
  std::string out, err;
};

Answer privacy_says(Words arguments) {
  arguments.insert(arguments.begin(), "privacy");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_veil(arguments);
  std::fflush(stdout);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

nlohmann::json record_of(Words arguments) {
  arguments.push_back("--json");
  const Answer answer = privacy_says(arguments);
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  return nlohmann::json::parse(answer.out);
}

Words operator+(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const Words kRun{"epsilon", "--sigma", "1", "--q", "0.01", "--steps", "1000", "--delta", "1e-5"};

TEST(Privacy, EpsilonByEveryAccountantIsATable) {
  const Answer answer = privacy_says(kRun + Words{"--accountant", "all"});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  for (const char* text : {"accountant", "epsilon", "error", "note", "pld", "1.828", "rdp",
                           "2.101366", "gdp", "1.617712", "no guarantee", "order 7.8"})
    EXPECT_THAT(answer.out, HasSubstr(text));
}

TEST(Privacy, TheDefaultIsPldAloneWithItsError) {
  const nlohmann::json record = record_of(kRun);
  ASSERT_EQ(record["results"].size(), 1u);
  EXPECT_EQ(record["results"][0]["accountant"], "pld");
  EXPECT_EQ(record["results"][0]["bound"], true);
  EXPECT_NEAR(record["results"][0]["epsilon"].get<double>(), 1.828236667, 1e-3);
  EXPECT_GT(record["results"][0]["error"].get<double>(), 0);
}

TEST(Privacy, BatchAndEpochsSayTheSameAsRateAndSteps) {
  const nlohmann::json record =
      record_of({"epsilon", "--sigma", "1", "--batch", "500", "--data-size", "50000", "--epochs",
                 "10", "--delta", "1e-5", "--accountant", "rdp"});
  EXPECT_EQ(record["phases"][0]["steps"], 1000);
  EXPECT_EQ(record["phases"][0]["q"], 0.01);
  // 3 / 0.1 is a little over 30 in binary; 1 / 0.3 is not whole.
  const auto steps = [](const char* q, const char* epochs) {
    return record_of({"epsilon", "--sigma", "1", "--q", q, "--epochs", epochs, "--delta", "1e-5",
                      "--accountant", "gdp"})["phases"][0]["steps"]
        .get<int64_t>();
  };
  EXPECT_EQ(steps("0.1", "3"), 30);
  EXPECT_EQ(steps("0.3", "1"), 4);
}

TEST(Privacy, PhasesAreRepeatedAndCompose) {
  const nlohmann::json record =
      record_of({"epsilon", "--phase", "1,0.01,500", "--phase=2,0.02,1000", "--delta", "1e-5",
                 "--accountant", "rdp"});
  ASSERT_EQ(record["phases"].size(), 2u);
  EXPECT_NEAR(record["results"][0]["epsilon"].get<double>(), 2.13275156497689, 1e-6);
}

TEST(Privacy, NoNoiseIsInfiniteAlsoInJson) {
  const Words run{"epsilon", "--sigma", "0", "--q", "0.1", "--steps", "5", "--delta", "1e-5"};
  EXPECT_EQ(record_of(run)["results"][0]["epsilon"], "inf");
  EXPECT_THAT(privacy_says(run).out, HasSubstr("inf"));
}

TEST(Privacy, SigmaKeepsTheBudget) {
  const nlohmann::json record = record_of({"sigma", "--epsilon", "8", "--delta", "1e-5", "--q",
                                           "0.04", "--steps", "2250", "--accountant", "all"});
  ASSERT_EQ(record["results"].size(), 3u);
  EXPECT_NEAR(record["results"][0]["sigma"].get<double>(), 1.34589833, 1e-3);
  EXPECT_NEAR(record["results"][1]["sigma"].get<double>(), 1.41578714, 1e-3);
  for (const auto& row : record["results"]) EXPECT_LE(row["epsilon"].get<double>(), 8);
}

TEST(Privacy, JsonAndPlotGoToFiles) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "veil_privacy_test";
  std::filesystem::remove_all(folder);
  const std::string json = folder / "spent.json", plot = folder / "spent.png";
  const Answer answer =
      privacy_says(kRun + Words{"--accountant", "rdp", "--json", json, "--plot", plot});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("2.101366"));
  EXPECT_TRUE(nlohmann::json::parse(std::ifstream(json)).contains("results"));
  if (std::filesystem::exists(plot)) {
    std::string begin(4, ' ');
    std::ifstream(plot).read(begin.data(), 4);
    EXPECT_EQ(begin, "\x89PNG");
    EXPECT_FALSE(std::filesystem::exists(plot + ".gp"));
    // What Veil wrote it replaces, and what a person changed since it does not.
    const Words again = kRun + Words{"--accountant", "rdp", "--plot", plot};
    EXPECT_EQ(privacy_says(again).code, kExitDone);
    std::ofstream(plot, std::ios::app) << "mine";
    EXPECT_EQ(privacy_says(again).code, kExitUsage);
  } else {
    EXPECT_TRUE(std::filesystem::exists(plot + ".gp") && std::filesystem::exists(plot + ".dat"));
  }
  std::filesystem::remove_all(folder);
}

TEST(Privacy, WithoutGnuplotTheScriptAndItsDataAreLeftAndOneLineSaysSo) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "veil_privacy_no_gnuplot";
  std::filesystem::remove_all(folder);
  const std::string plot = folder / "spent.png", path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const Answer answer = privacy_says(kRun + Words{"--accountant", "rdp", "--plot", plot});
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(answer.code, kExitDone);
  EXPECT_THAT(answer.err, HasSubstr("gnuplot is missing"));
  EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1);
  EXPECT_TRUE(std::filesystem::exists(plot + ".gp") && std::filesystem::exists(plot + ".dat"));
  std::filesystem::remove_all(folder);
}

TEST(Privacy, BadInputIsOneLineAndExitCodeTwo) {
  struct Case {
    Words words;
    const char* said;
  };
  const std::vector<Case> cases = {
      {{}, "allowed are epsilon, sigma and explore"},
      {{"epsilom"}, "did you mean epsilon?"},
      {{"epsilon", "--sigma", "-1", "--q", "0.1", "--steps", "5", "--delta", "1e-5"},
       "--sigma must be 0 or more, got -1"},
      {{"epsilon", "--sigma", "1", "--q", "1.5", "--steps", "5", "--delta", "1e-5"},
       "--q must be a sampling rate from 0 to 1, got 1.5"},
      {{"epsilon", "--sigma", "1", "--q", "-0.5", "--steps", "5", "--delta", "1e-5"},
       "--q must be a sampling rate from 0 to 1, got -0.5"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "-5", "--delta", "1e-5"},
       "--steps must be 0 or more, got -5"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "5", "--delta", "1"},
       "--delta must be between 0 and 1, both excluded, got 1"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "5", "--delta", "0"},
       "--delta must be between 0 and 1, both excluded, got 0"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "5"}, "--delta is missing"},
      {{"epsilon", "--q", "0.5", "--steps", "5", "--delta", "1e-5"}, "--sigma is missing"},
      {{"epsilon", "--sigma", "1", "--steps", "5", "--delta", "1e-5"}, "--q is missing"},
      {{"epsilon", "--sigma", "1", "--batch", "5", "--steps", "5", "--delta", "1e-5"},
       "--data-size is missing"},
      {{"epsilon", "--sigma", "1", "--data-size", "5", "--steps", "5", "--delta", "1e-5"},
       "--batch is missing"},
      {{"epsilon", "--sigma", "1", "--batch", "6", "--data-size", "5", "--steps", "5", "--delta",
        "1e-5"},
       "--batch 6"},
      {{"epsilon", "--sigma", "1", "--batch", "0", "--data-size", "0", "--steps", "5", "--delta",
        "1e-5"},
       "--data-size 0"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--delta", "1e-5"}, "--steps is missing"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "5", "--epochs", "2", "--delta",
        "1e-5"},
       "--epochs"},
      {{"epsilon", "--sigma", "1", "--q", "0", "--epochs", "2", "--delta", "1e-5"}, "--epochs 2"},
      {{"epsilon", "--phase", "1,0.1", "--delta", "1e-5"}, "--phase 1,0.1"},
      {{"epsilon", "--phase", "1,2,3", "--delta", "1e-5"},
       "--q must be a sampling rate from 0 to 1, got 2"},
      {{"epsilon", "--phase", "1,0.1,3", "--sigma", "1", "--delta", "1e-5"}, "allowed is one way"},
      {{"epsilon", "--sigma", "1", "--q", "0.5", "--steps", "5", "--delta", "1e-5", "--accountant",
        "rpd"},
       "rdp"},
      {{"sigma", "--q", "0.5", "--steps", "5", "--delta", "1e-5"}, "--epsilon is missing"},
      {{"sigma", "--epsilon", "-1", "--q", "0.5", "--steps", "5", "--delta", "1e-5"},
       "--epsilon must be positive, got -1"},
      {{"sigma", "--epsilon", "0.01", "--q", "0.5", "--steps", "5", "--delta", "1e-10",
        "--accountant", "rdp"},
       "reaches no less than"},
  };
  for (const Case& tried : cases) {
    const Answer answer = privacy_says(tried.words);
    SCOPED_TRACE(answer.err);
    EXPECT_EQ(answer.code, kExitUsage);
    EXPECT_THAT(answer.err, HasSubstr(tried.said));
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1);
    EXPECT_EQ(answer.out, "");
  }
}

TEST(Privacy, HelpIsThereForBoth) {
  for (const Words& words :
       {Words{"--help"}, Words{"epsilon", "--help"}, Words{"sigma", "--help"}}) {
    const Answer answer = privacy_says(words);
    EXPECT_EQ(answer.code, kExitDone);
    EXPECT_THAT(answer.out, HasSubstr("usage: veil privacy"));
  }
}

// A larger batch at the same steps never raises sigma / batch, and at most halves it; a small batch
// of much data pays, and a batch of all data cannot.
TEST(Privacy, ExploreMarksWhereALargerBatchStopsPaying) {
  const nlohmann::json record =
      record_of({"explore", "--dataset-size", "20000", "--epsilon", "4", "--delta", "1e-6",
                 "--batch", "16,1024,20000", "--epochs", "2,20"});
  ASSERT_EQ(record["runs"].size(), 6u);
  for (const nlohmann::json& run : record["runs"]) {
    const double sigma = run["sigma"], batch = run["batch"], epochs = run["epochs"];
    EXPECT_EQ(run["steps"].get<double>(), std::ceil(epochs * 20000 / batch));
    EXPECT_DOUBLE_EQ(run["noise_batch_ratio"].get<double>(), sigma / batch);
    // sigmas are upper bounds to a hundredth
    EXPECT_GE(run["doubling"].get<double>(), 0.98);
    EXPECT_LE(run["doubling"].get<double>(), 2.04);
    // what the exact accountant says of it: within the budget, and not far below
    const nlohmann::json exact = record_of(
        {"epsilon", "--sigma", fmt::format("{}", sigma), "--batch", fmt::format("{}", batch),
         "--data-size", "20000", "--epochs", fmt::format("{}", epochs), "--delta", "1e-6"});
    EXPECT_LE(exact["results"][0]["epsilon"].get<double>(), 4);
    EXPECT_GE(exact["results"][0]["epsilon"].get<double>(), 4 * 0.93);
  }
  EXPECT_EQ(record["runs"][0]["region"], "larger pays");
  EXPECT_EQ(record["runs"][5]["region"], "saturated");
}

TEST(Privacy, ExplorePrintsATableAndRefusesWhatCannotBe) {
  const Answer answer = privacy_says(
      {"explore", "--data-size", "500", "--epsilon", "2", "--delta", "1e-4", "--epochs", "1"});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  for (const char* text : {"batch", "epochs", "steps", "sigma / batch", "doubling", "region"})
    EXPECT_THAT(answer.out, HasSubstr(text));
  for (const auto& [option, value, says] :
       {std::tuple{"--batch", "501", "--batch 501: allowed is more than 0"},
        {"--epochs", "0", "--epochs must be positive"},
        {"--delta", "0", "--delta must be between 0 and 1"},
        {"--data-size", "0", "--data-size must be at least 1"},
        {"--epsilon", "-1", "--epsilon must be positive"}}) {
    Words words{"explore", option, value};
    for (const auto& [other, usual] :
         {std::pair{"--data-size", "500"}, {"--epsilon", "2"}, {"--delta", "1e-4"}}) {
      if (other != std::string(option)) words = words + Words{other, usual};
    }
    const Answer wrong = privacy_says(words);
    EXPECT_EQ(wrong.code, kExitUsage);
    EXPECT_THAT(wrong.err, HasSubstr(says));
  }
}

}  // namespace
}  // namespace veil::privacy_test
