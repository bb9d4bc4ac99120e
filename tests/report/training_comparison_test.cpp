#include "report/training_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/test_records.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Wanted {
  int steps = 20;
  double loss = 100;  // of the first step; it falls by one each step
  std::optional<double> epsilon = {}, held_out = {};
  int lost = 0;  // this step has no loss
  std::optional<int> drawn = {};
};

void write_run(const Folder& folder, const std::string& name, const Wanted& wanted,
               const json& settings) {
  std::string text;
  for (int step = 1; step <= wanted.steps; ++step) {
    json line = {
        {"step", step},         {"loss", wanted.loss - step},  {"seconds", 0.5},
        {"learning_rate", 0.5}, {"tokens_per_second", 2000.0}, {"peak_memory_bytes", 3 << 20}};
    if (step == wanted.lost) line["loss"] = nullptr;
    if (step == wanted.lost && wanted.drawn) line["samples"] = *wanted.drawn;
    if (wanted.epsilon) line["epsilon"] = *wanted.epsilon * step / wanted.steps;
    text += line.dump() + "\n";
  }
  if (wanted.held_out)
    text += json{{"step", wanted.steps}, {"held_out_loss", *wanted.held_out}}.dump() + "\n";
  fs::create_directories(folder.path(name));
  folder.write(name + "/metrics.jsonl", text);
  folder.write(name + "/settings.json", settings.dump());
}

TEST(TrainingComparison, EachRunHasARowACurveAndTheSettingsOfItsOwn) {
  Folder folder;
  write_run(folder, "plain", {.held_out = 3.25}, {{"model", "tiny"}, {"learning-rate", 0.5}});
  write_run(
      folder, "private", {.steps = 40, .epsilon = 2.00001, .held_out = 3.5},
      {{"model", "tiny"}, {"learning-rate", 0.25}, {"delta", 1e-5}, {"privacy-unit", "document"}});
  const auto runs = read_compared({folder.path("plain"), folder.path("private/")});
  EXPECT_EQ(comparison_headline(runs),
            "plain ends with the lowest held-out loss, 3.25; private with the highest, 3.5.");
  // The mean of the last tenth: of steps 19 and 20, and of 37 to 40.
  EXPECT_THAT(comparison_table(runs).cells(),
              ElementsAre(ElementsAre("plain", "20", "80.5", "3.25", "not private", "-", "-", "2 k",
                                      "10.0 s", "3.00 MiB"),
                          ElementsAre("private", "40", "61.5", "3.5", "2.0001", "1e-05", "document",
                                      "2 k", "20.0 s", "3.00 MiB")));
  EXPECT_THAT(
      differing_settings(runs).cells(),
      ElementsAre(ElementsAre("delta", "-", "1e-05"), ElementsAre("learning-rate", "0.5", "0.25"),
                  ElementsAre("privacy-unit", "-", "document")));
  std::vector<std::string> names;
  for (const Plot& plot : comparison_plots(runs)) names.push_back(plot.name);
  EXPECT_THAT(names,
              ElementsAre("loss", "held_out_loss", "epsilon", "tokens_per_second", "memory"));
  const std::string text = comparison_text(runs);
  EXPECT_THAT(text, HasSubstr("Not private"));
  EXPECT_THAT(text, HasSubstr("no run's epsilon counts that"));
}

TEST(TrainingComparison, WithoutHeldOutLossesTheLastTenthDecides) {
  Folder folder;
  write_run(folder, "a/run", {.loss = 100, .held_out = 1}, json::object());
  write_run(folder, "b/run", {.loss = 90}, json::object());
  const auto runs = read_compared({folder.path("a/run"), folder.path("b/run")});
  EXPECT_EQ(comparison_headline(runs),
            "b/run ends with the lowest loss, 70.5; a/run with the highest, 80.5.");
  EXPECT_THAT(comparison_text(runs), Not(HasSubstr("Settings that differ")));
  EXPECT_THAT(comparison_text(runs), Not(HasSubstr("Not private")));
}

TEST(TrainingComparison, EpsilonsOfOtherGuaranteesAreNotCompared) {
  Folder folder;
  write_run(folder, "a", {.epsilon = 1}, {{"delta", 1e-5}});
  write_run(folder, "b", {.epsilon = 1}, {{"delta", 1e-5}});
  write_run(folder, "c", {.epsilon = 1}, {{"delta", 1e-3}});
  const std::string says = "their epsilons cannot be compared";
  EXPECT_THAT(comparison_text(read_compared({folder.path("a"), folder.path("b")})),
              Not(HasSubstr(says)));
  EXPECT_THAT(comparison_text(read_compared({folder.path("a"), folder.path("c")})),
              HasSubstr(says));
}

TEST(TrainingComparison, ARunThatDivergedHasNoLoss) {
  Folder folder;
  write_run(folder, "good", {.loss = 100}, json::object());
  write_run(folder, "diverged", {.loss = 50, .lost = 19}, json::object());
  // of a private run: nothing was drawn
  write_run(folder, "empty", {.loss = 90, .epsilon = 1, .lost = 19, .drawn = 0}, json::object());
  EXPECT_EQ(comparison_headline(read_compared(
                {folder.path("good"), folder.path("diverged"), folder.path("empty")})),
            "empty ends with the lowest loss, 70; good with the highest, 80.5; 1 run with one that "
            "is no number.");
}

TEST(TrainingComparison, NamesAreWhatTellsTheFoldersApart) {
  Folder folder;
  const auto names = [&](const std::vector<std::string>& folders) {
    std::vector<std::string> paths, found;
    for (const std::string& name : folders) {
      if (!fs::exists(folder.path(name))) write_run(folder, name, {}, json::object());
      paths.push_back(folder.path(name));
    }
    for (const ComparedRun& one : read_compared(paths)) found.push_back(one.name);
    return found;
  };
  EXPECT_THAT(names({"runs/run_1", "runs/run_2"}), ElementsAre("run_1", "run_2"));
  EXPECT_THAT(names({"plain/run_1", "private/run_2"}), ElementsAre("plain", "private"));
  EXPECT_THAT(names({"plain/run_1", "private/run_2", "private/run_3"}),
              ElementsAre("plain/run_1", "private/run_2", "private/run_3"));
  EXPECT_THAT(names({"x/a/run_1", "x/b/c/run_1"}), ElementsAre("a", "b/c"));
  EXPECT_THAT(names({"y/a", "y/a/run_9"}), ElementsAre("a", "a/run_9"));
}

TEST(TrainingComparison, FilesAreTheOwnersIfARunIsPrivateAndReplaceNothing) {
  for (const bool is_private : {false, true}) {
    Folder folder;
    write_run(folder, "a", {}, json::object());
    write_run(folder, "b", {.epsilon = is_private ? std::optional(1.0) : std::nullopt},
              json::object());
    const std::vector<std::string> both = {folder.path("a"), folder.path("b")};
    EXPECT_TRUE(write_training_comparison(both, "").files.empty());
    write_training_comparison(both, folder.path("out"));
    for (const char* const name : {"comparison.txt", "comparison.csv", "comparison.html"}) {
      const fs::perms mode = fs::status(folder.path(std::string("out/") + name)).permissions();
      EXPECT_EQ((mode & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none,
                is_private)
          << name;
    }
    // a folder of the pictures' name that was there keeps its mode, and what is in it
    fs::create_directories(folder.path("wide/comparison"));
    folder.write("wide/comparison/notes.txt", "mine");
    fs::permissions(folder.path("wide/comparison"), fs::perms(0755));
    write_training_comparison(both, folder.path("wide"));
    EXPECT_EQ(fs::status(folder.path("wide/comparison")).permissions(), fs::perms(0755));
    for (const auto& entry : fs::directory_iterator(folder.path("wide/comparison"))) {
      if (entry.path().filename() == "notes.txt") continue;
      const fs::perms others = entry.status().permissions() & fs::perms(0077);
      EXPECT_EQ(others == fs::perms::none, is_private) << entry.path();
    }
    fs::create_directories(folder.path("mine"));
    folder.write("mine/comparison.csv", "mine");
    EXPECT_THROW(write_training_comparison(both, folder.path("mine")), UserError);
    EXPECT_EQ(folder.read("mine/comparison.csv"), "mine");
    EXPECT_FALSE(fs::exists(folder.path("mine/comparison.html")));
  }
}

TEST(TrainingComparison, WhatCannotBeComparedIsRefused) {
  Folder folder;
  write_run(folder, "a", {}, json::object());
  fs::create_directories(folder.path("records"));
  folder.write("records/x_result.json", "{}");
  const auto error_of = [](const std::vector<std::string>& folders) {
    try {
      read_compared(folders);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(error_of({folder.path("a"), folder.path("records")}),
              HasSubstr("records' is not a training run's folder"));
  EXPECT_THAT(error_of({folder.path("a"), folder.path("nowhere")}), HasSubstr("no such folder"));
  EXPECT_THAT(error_of({folder.path("a"), folder.path("a/../a")}), HasSubstr("is given twice"));
  EXPECT_THAT(error_of(std::vector<std::string>(9, folder.path("a"))),
              HasSubstr("9 training runs: at most 8"));
}

}  // namespace
}  // namespace veil
