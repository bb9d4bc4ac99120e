// Reports of the suites that compare clipping modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "report/changes.h"
#include "report/report.h"
#include "report/test_records.h"
#include "suite/modes.h"

namespace veil::mode_report_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Folder;
using test::judge;
using test::write_report;
using ::testing::HasSubstr;
using ::testing::Not;

// A result file as other profilers of private training write it: these keys and no others.
json seed_record(const std::string& mode, int64_t length, double gb, double ms) {
  return {{"mode", mode},
          {"seq_length", length},
          {"batch_size", 2},
          {"total_batch_size", 4},
          {"num_gpus", 2},
          {"peak_memory_mb", gb * 1000},
          {"peak_memory_gb", gb},
          {"avg_time_ms", ms},
          {"config",
           {{"model_name", "meta-llama/Llama-3.1-8B-Instruct"},
            {"vocab_size", 128256},
            {"learning_rate", 1e-05},
            {"sigma", 1.0},
            {"max_grad_norm", 1.0}}}};
}

void write_seed_folder(const Folder& folder) {
  for (const int64_t length : {1024, 2048, 4096}) {
    const auto t = static_cast<double>(length) / 1024;
    const auto write = [&](const std::string& mode, double gb, double ms) {
      folder.write(mode + "_seq" + std::to_string(length) + "_result.json",
                   seed_record(mode, length, gb, ms).dump(1));
    };
    write("no_dp", 20 + 5 * t, 200 * t);
    write("ghost_fsdp", 22 + 6 * t, 300 * t * t);
    write("flash_fsdp", 21 + 5 * t, 250 * t);
  }
}

TEST(ModeReport, TheSeedsOwnResultFilesGiveItsTreeAndItsOverheads) {
  Folder folder;
  write_seed_folder(folder);
  const ReportFiles report = write_report(folder.path(), folder.path("visualizations"));
  for (const char* const name :
       {"memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis"}) {
    EXPECT_TRUE(fs::exists(folder.path(std::string("visualizations/") + name + ".gp"))) << name;
    if (report.plots_hint.empty()) {
      EXPECT_TRUE(fs::exists(folder.path(std::string("visualizations/") + name + ".png"))) << name;
    }
  }
  EXPECT_FALSE(fs::exists(folder.path("visualizations/visualizations")));
  const std::string summary = folder.read("visualizations/summary.txt");
  // 1000 against 800 ms, 41 against 40 GB; there is no auto among the seed's modes
  EXPECT_THAT(summary,
              HasSubstr("\nAt T = 4096, private training takes 25% more time and 953.67 MiB "
                        "more memory than plain training (flash_fsdp).\n"));
  EXPECT_THAT(summary, HasSubstr("+100 ms (+50.0%)"));  // ghost at 1024
  EXPECT_THAT(summary,
              HasSubstr("time grows in proportion to T from 1024 to 4096: 195 ms per 1000"));
  // ghost's T^2 at three lengths
  EXPECT_THAT(summary, HasSubstr("16.00 times as large at T = 4096"));
  EXPECT_THAT(summary, HasSubstr("(3 lengths cannot tell the law)"));
  EXPECT_THAT(folder.read("visualizations/index.html"), HasSubstr("What does privacy cost"));
}

TEST(ModeReport, AMissingBaseIsSaidAndGivesNoOverhead) {
  Folder folder;
  write_seed_folder(folder);
  for (const char* const length : {"1024", "2048", "4096"})
    fs::remove(folder.path(std::string("no_dp_seq") + length + "_result.json"));
  const ReportFiles report = write_report(folder.path(), "");
  EXPECT_THAT(report.summary, HasSubstr("There is no no_dp record"));
  EXPECT_THAT(report.summary, Not(HasSubstr("than no_dp")));
}

// A step of five phases; norms take a T^2, the others T.
std::vector<json> bottleneck_records(const std::string& slow, double factor) {
  std::vector<json> records;
  for (const std::string mode : {"flash", "bookkeeping"}) {
    for (const int64_t length : {1024, 2048, 4096, 8192}) {
      const auto t = static_cast<double>(length) / 1024;
      json phases = {{"forward", {{"ms", 10 * t}}},    {"first_backward", {{"ms", 12 * t}}},
                     {"norms", {{"ms", 0.5 * t * t}}}, {"second_backward", {{"ms", 11 * t}}},
                     {"noise_update", {{"ms", 5}}},    {"gap", {{"ms", 0.5}}}};
      if (phases.contains(slow)) phases[slow]["ms"] = phases[slow]["ms"].get<double>() * factor;
      json communication = json::object();
      if (slow == "wait for gather")
        communication["gather"] = {
            {"total_ms", 40 * factor}, {"exposed_ms", 30 * factor}, {"bytes", 1000}};
      double sum = communication.empty() ? 0 : 30 * factor;
      for (const auto& [name, phase] : phases.items()) sum += phase["ms"].get<double>();
      records.push_back(
          {{"schema", 1},
           {"suite", "bottlenecks"},
           {"experiment", mode + "_seq" + std::to_string(length)},
           {"title", mode + ", T=" + std::to_string(length)},
           {"outcome", "ok"},
           {"mode", mode},
           {"seq_length", length},
           {"batch_size", 4},
           {"world", 1},
           {"device", "cuda"},
           {"graph", "off: as asked"},
           {"avg_time_ms", sum},
           {"times_ms", {sum * 0.99, sum * 1.01}},
           {"phases", phases},
           {"communication", communication},
           {"peak_memory_bytes", 1'000'000 + 2'000'000 * t},
           {"breakdown", {{"parameters", 1'000'000}, {"activations", 2'000'000 * t}}}});
    }
  }
  return records;
}

std::string percent_of(const Bottleneck& found) {
  return std::to_string(std::lround(100 * found.share)) + "%";
}

TEST(ModeReport, TheVerdictNamesThePhaseThatWasSlowedDownAndGivesTheAdviceThatFits) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"norms", "--rule"},
      {"second_backward", "--pass-plan book"},
      {"noise_update", "--accumulation"},
      {"wait for gather", "--forward-prefetch"},
      {"gap", "--graph on"},
      {"forward", "the model's own computing"}};
  for (const auto& [slow, advice] : cases) {
    Folder folder;
    folder.write_records(bottleneck_records(slow, 1000));
    const RecordFolder records = read_records(folder.path());
    const auto found = bottleneck_of(records.records, "flash");
    ASSERT_TRUE(found) << slow;
    EXPECT_EQ(found->part, slow);
    EXPECT_GT(found->share, 0.5) << slow;
    const Verdict verdict = judge(records);
    std::string shown = slow;
    std::replace(shown.begin(), shown.end(), '_', ' ');
    EXPECT_THAT(verdict.headline, HasSubstr("At T = 8192, the largest part of a step is "));
    EXPECT_THAT(verdict.headline, HasSubstr(shown + " in flash (" + percent_of(*found) + ")"));
    EXPECT_THAT(verdict.findings, ::testing::Contains(HasSubstr(advice))) << slow;
  }
}

TEST(ModeReport, TheLawOfEveryPhaseIsInTheTableAndThePageIsWritten) {
  Folder folder;
  folder.write_records(bottleneck_records("", 1));
  const ReportFiles report = write_report(folder.path(), "");
  for (const PartGrowth& part : time_growth(read_records(folder.path()).records, "flash")) {
    ASSERT_TRUE(part.fit) << part.part;
    const Law truth = part.part == "norms" || part.part == "step"         ? Law::quadratic
                      : part.part == "noise_update" || part.part == "gap" ? Law::constant
                                                                          : Law::linear;
    EXPECT_EQ(part.fit->law, truth) << part.part;
    EXPECT_NEAR(part.fit->deviation, 0, 1e-9) << part.part;
  }
  for (const char* const name :
       {"phases_by_length", "time_scaling", "memory_scaling", "time_scaling_flash"})
    EXPECT_THAT(report.files, ::testing::Contains(std::string("visualizations/") + name + ".gp"));
  EXPECT_THAT(folder.read("scaling.csv"), HasSubstr("flash,time,norms"));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("Growth with the sequence"));
  EXPECT_THAT(report.summary, HasSubstr("--checkpointing full"));  // activations fill the peak
}

TEST(ModeReport, AnExperimentThatFailedBeforeItsFirstStepHasItsPlaceInTheTable) {
  Folder folder;
  std::vector<json> records = bottleneck_records("", 1);
  records.push_back({{"schema", 1},
                     {"suite", "bottlenecks"},
                     {"experiment", "flash_seq16384"},
                     {"title", "flash, T=16384"},
                     {"outcome", "error"},
                     {"message", "exit code 1: it broke"}});
  folder.write_records(records);
  EXPECT_THAT(write_report(folder.path(), "").summary,
              ::testing::ContainsRegex("flash +16384 +-.*failed"));
}

TEST(ModeReport, RecordsOfTwoSuitesInOneFolderAreRefusedInOneLine) {
  Folder folder;
  folder.write_records(bottleneck_records("", 1));
  folder.write_records(test::linear_suite_records());
  try {
    write_report(folder.path(), "");
    FAIL() << "it was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bottlenecks (8), linear (4)"));
  }
}

TEST(Changes, WhatChangedIsSetAgainstTheNoise) {
  Folder before, after;
  std::vector<json> old = bottleneck_records("", 1), now = old;
  now[0]["avg_time_ms"] = old[0]["avg_time_ms"].get<double>() * 0.5;  // far beyond the spread of 1%
  now[0]["times_ms"] = {now[0]["avg_time_ms"].get<double>() * 0.99,
                        now[0]["avg_time_ms"].get<double>() * 1.01};
  now[1]["avg_time_ms"] = old[1]["avg_time_ms"].get<double>() * 1.001;
  now[2]["peak_memory_bytes"] = old[2]["peak_memory_bytes"].get<double>() + 4096;
  now.pop_back();
  before.write_records(old);
  after.write_records(now);
  const Changes changes = changes_between(read_records(before.path()), read_records(after.path()));
  ASSERT_EQ(changes.all.size(), 7u);
  EXPECT_EQ(changes.only_before.size(), 1u);
  EXPECT_THAT(change_headline(changes),
              HasSubstr("7 experiments in both runs 1 became faster, 0 slower, 6 did not"));
  EXPECT_THAT(change_headline(changes), HasSubstr("0 need less memory, 1 more"));
  const std::string text = write_changes(before.path(), after.path(), after.path("out"));
  EXPECT_THAT(text, HasSubstr("within the noise"));
  EXPECT_THAT(text, HasSubstr("(-50.0%)"));
  for (const char* const name : {"changes.txt", "changes.md", "changes.csv", "changes.html"})
    EXPECT_GT(fs::file_size(after.path(std::string("out/") + name)), 100u) << name;

  Folder other;
  other.write_records(test::linear_suite_records());
  EXPECT_THROW(write_changes(before.path(), other.path(), ""), UserError);
}

TEST(ModeReport, HalfARecordThatSaysOkIsNamedAndLeavesTheQuestionAsItWas) {
  Folder folder;
  write_seed_folder(folder);
  const std::string question =
      write_report(folder.path(), folder.path("before")).summary.substr(0, 60);
  folder.write("flash_fsdp_seq8192_result.json", R"({"outcome": "ok"})");
  folder.write("ghost_fsdp_seq8192_result.json", R"({"outcome": "ok", "avg_time_ms": 3.0})");
  folder.write("nothing_result.json", "{}");
  const ReportFiles report = write_report(folder.path(), folder.path("after"));
  EXPECT_EQ(report.summary.substr(0, 60), question);
  ASSERT_EQ(report.damaged.size(), 3u);
  EXPECT_EQ(report.damaged[0].file, "flash_fsdp_seq8192_result.json");
  EXPECT_THAT(report.summary, HasSubstr("holds no time and no peak memory"));
  EXPECT_THAT(report.summary, HasSubstr("holds no peak memory"));
}

// Records of a CPU: `share` is the private step's time against no_dp's, `others` the CPUs' share
// that other work took.
void write_cpu_folder(const Folder& folder, double share, double others,
                      const std::string& device = "cpu") {
  for (const int64_t length : {64, 128}) {
    for (const char* const mode : {"no_dp", "flash"}) {
      json record =
          seed_record(mode, length, 0.1, std::string(mode) == "no_dp" ? 100 : 100 * share);
      record["suite"] = "llama3-dp";
      record["outcome"] = "ok";
      record["order"] = (length == 64 ? 0 : 2) + (std::string(mode) == "no_dp" ? 0 : 1);
      record["device"] = device;
      record["std_time_ms"] = 1.0;
      record["times_ms"] = {record["avg_time_ms"], record["avg_time_ms"]};
      record["title"] = std::string(mode) + ", T=" + std::to_string(length);
      record["cpu_during"] = {{"others_percent", length == 64 ? others : 0.5},
                              {"own_percent", 40.0}};
      folder.write(std::string(mode) + "_seq" + std::to_string(length) + "_result.json",
                   record.dump(1));
    }
  }
}

TEST(ModeReport, OtherWorkOnTheCpusIsToldOnThePage) {
  Folder busy, quiet;
  write_cpu_folder(busy, 1.2, 62);
  write_cpu_folder(quiet, 1.2, 3);
  const ReportFiles report = write_report(busy.path(), "");
  const std::string words =
      "Other work used up to 62% of the CPUs during no_dp, T=64; flash, T=64: times mean little.";
  EXPECT_THAT(busy.read("index.html"), HasSubstr(words));
  EXPECT_THAT(write_report(quiet.path(), "").summary, Not(HasSubstr("Other work")));
}

TEST(ModeReport, APrivateStepThatBeatsThePlainOneIsDoubtedOnACpuAlone) {
  const auto doubted = [](double share, const std::string& device) {
    Folder folder;
    write_cpu_folder(folder, share, 0, device);
    return write_report(folder.path(), "")
               .summary.find("Doubtful: flash, T=64; flash, T=128 came out") != std::string::npos;
  };
  EXPECT_TRUE(doubted(0.8, "cpu"));
  EXPECT_FALSE(doubted(0.97, "cpu")) << "less than 5%";
  EXPECT_FALSE(doubted(1.1, "cpu"));
  EXPECT_FALSE(doubted(0.8, "cuda")) << "there the update is another kernel";
}

TEST(ModeReport, LittleThingsOfThePage) {
  Folder folder;
  write_cpu_folder(folder, 0.5, 0);
  for (const char* const mode : {"no_dp", "flash"}) {
    const std::string name = std::string(mode) + "_seq64_result.json";
    json record = json::parse(folder.read(name));
    record["config"]["output"] = std::string(mode) + "_seq64.running.json";
    record["peak_memory_bytes"] = std::string(mode) == "no_dp" ? 600 * 1024 : 40 * 1024 * 1024;
    folder.write(name, record.dump(1));
  }
  write_report(folder.path(), "");
  const std::string page = folder.read("index.html");
  EXPECT_THAT(page, Not(HasSubstr("running.json"))) << "a file's name is no setting";
  EXPECT_THAT(page, Not(HasSubstr("communication modelled"))) << "a footnote without its mark";
  const std::string summary = folder.read("summary.txt");
  EXPECT_THAT(summary, HasSubstr("-50.0 ms (-50.0%)"));
  const size_t begin = summary.find("\nmode ");
  const std::string table = summary.substr(begin, summary.find("\n\n", begin) - begin);
  EXPECT_THAT(table, HasSubstr("0.59 MiB"));
  EXPECT_THAT(table, Not(HasSubstr("KiB"))) << "two units in a column";
}

// The page's copy of a picture leaves out the marks that gnuplot defines for points, so points have
// to be circles.
TEST(ModeReport, NoPlotOfADiffusionSuiteIsMadeOfMarksThatThePageLeavesOut) {
  Folder folder;
  write_cpu_folder(folder, 1.5, 0);
  for (const char* const name : {"no_dp_seq64", "flash_seq64", "no_dp_seq128", "flash_seq128"}) {
    json record = json::parse(folder.read(std::string(name) + "_result.json"));
    record["suite"] = "dit-dp";
    folder.write(std::string(name) + "_result.json", record.dump(1));
  }
  write_report(folder.path(), "");
  const std::string script = folder.read("visualizations/performance_tradeoff.gp");
  EXPECT_THAT(script, HasSubstr("with circles"));
  EXPECT_THAT(script, Not(HasSubstr("with points")));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("most images per second"));
}

TEST(ModeReport, WhatNvmlSawOfTheGpuIsShown) {
  const test::Folder folder;
  std::vector<json> records = bottleneck_records("norms", 1);
  EXPECT_THAT(write_report((folder.write_records(records), folder.path()), "").summary,
              Not(HasSubstr("GPU busy")));
  records[0]["gpu_state"] = {{"utilisation_percent", 98.7}};
  const test::Folder watched;
  watched.write_records(records);
  const std::string summary = write_report(watched.path(), "").summary;
  EXPECT_THAT(summary, HasSubstr("GPU busy"));
  EXPECT_THAT(summary, HasSubstr("99%"));
}

}  // namespace
}  // namespace veil::mode_report_test
