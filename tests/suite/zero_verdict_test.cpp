// The verdict and the files of the ZeRO suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/text.h"
#include "base/units.h"
#include "report/report.h"
#include "report/test_records.h"

namespace veil {
namespace {

using nlohmann::json;
using test::judge;
using test::write_report;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Made {
  std::string strategy;
  int64_t batch = 4, accumulation = 1;
  double tokens = 10000, spread_ms = 1, gib = 20;
  double exposed_ms = 5, load_ms = 1, utilisation = 90;
  std::string outcome = "ok";
};

// A record of `veil suite zero`: a step of 100 ms.
json record_of(const Made& made) {
  const std::string name = made.strategy + "_bs" + std::to_string(made.batch) + "_ga" +
                           std::to_string(made.accumulation);
  const auto bytes = static_cast<int64_t>(made.gib * static_cast<double>(kGiB));
  return {{"schema", 1},
          {"suite", "zero"},
          {"experiment", name},
          {"title", made.strategy + " bs" + std::to_string(made.batch) + " ga" +
                        std::to_string(made.accumulation)},
          {"outcome", made.outcome},
          {"batch_size", made.batch},
          {"world", 2},
          {"device", "cuda"},
          {"seq_length", 2048},
          {"avg_time_ms", 100.0},
          {"std_time_ms", made.spread_ms},
          {"tokens_per_second", made.tokens},
          {"mfu", 0.4},
          {"gpu_state", {{"utilisation_percent", made.utilisation}}},
          {"peak_memory_bytes", bytes},
          {"memory_mean_bytes", bytes / 2},
          {"end_to_end_seconds", 12.5},
          {"graph", "on"},
          {"attention", "cudnn"},
          {"fused_kernels", "on"},
          {"data",
           {{"source", "data"},
            {"tokenizer", "byte"},
            {"loader_busy_ms", 0.5},
            {"loader_waited_ms", 0.25},
            {"load_ms", made.load_ms},
            {"steps_an_epoch", 10}}},
          {"phases",
           {{"forward", {{"ms", 30.0}}}, {"backward", {{"ms", 60.0}}}, {"gap", {{"ms", 2.0}}}}},
          {"communication",
           {{"gather",
             {{"total_ms", 20.0},
              {"exposed_ms", made.exposed_ms},
              {"bytes", made.strategy == "zero3" ? 300 : 100}}},
            {"reduce", {{"total_ms", 10.0}, {"exposed_ms", 1.0}, {"bytes", 100}}},
            {"copy", {{"total_ms", 900.0}, {"exposed_ms", 0.0}, {"bytes", 100000}}}}},
          {"ranks",
           {{{"rank", 0}, {"peak_memory_bytes", bytes}, {"memory_mean_bytes", bytes / 2}},
            {{"rank", 1},
             {"peak_memory_bytes", bytes + 1024},
             {"memory_mean_bytes", bytes / 2 + 512}}}},
          {"config", {{"strategy", made.strategy}, {"accumulation", made.accumulation}}}};
}

std::vector<json> records_of(const std::vector<Made>& made) {
  std::vector<json> records;
  for (const Made& one : made) records.push_back(record_of(one));
  return records;
}

Verdict verdict_on(const std::vector<json>& records) {
  const test::Folder folder;
  folder.write_records(records);
  return judge(read_records(folder.path()));
}

std::string words_on(const std::vector<Made>& made) {
  const Verdict verdict = verdict_on(records_of(made));
  return join(verdict.findings, "\n") + "\n" + join(verdict.caveats, "\n");
}

TEST(ZeroVerdict, TheFastestIsTakenAndItsSmallerRivalNamedForLessMemory) {
  const Verdict verdict =
      verdict_on(records_of({{.strategy = "zero2", .tokens = 12000, .gib = 40},
                             {.strategy = "zero3", .tokens = 9000, .gib = 20}}));
  EXPECT_EQ(verdict.question, "ZeRO 2 or ZeRO 3, at which batch, for this model on these ranks?");
  EXPECT_THAT(verdict.headline, "Take zero2 with batch 4 (12 k tokens/s in 40.00 GiB per rank).");
  EXPECT_THAT(verdict.findings[0], HasSubstr("reaches 25% less."));
  EXPECT_THAT(verdict.findings[1], HasSubstr("not fit, zero3: the same batch in 20.00 GiB"));
  EXPECT_THAT(join(verdict.findings, "\n"),
              HasSubstr("zero3 against zero2, at equal work (1 pair): peak memory 50% less, "
                        "tokens/s 25% less, 2.00 "
                        "times the bytes between ranks"));
}

TEST(ZeroVerdict, WithinTheSpreadLessMemoryIsTaken) {
  const std::vector<Made> near = {
      {.strategy = "zero2", .tokens = 10100, .spread_ms = 5, .gib = 40},
      {.strategy = "zero3", .tokens = 10000, .spread_ms = 5, .gib = 20}};
  EXPECT_THAT(verdict_on(records_of(near)).headline, HasSubstr("Take zero3"));
  EXPECT_THAT(verdict_on(records_of(near)).findings[0],
              HasSubstr("reaches 1.0% more, within the steps' spread."));
  std::vector<Made> far = near;
  far[0].spread_ms = far[1].spread_ms = 0.1;
  EXPECT_THAT(verdict_on(records_of(far)).headline, HasSubstr("Take zero2"));
}

TEST(ZeroVerdict, AdviceComesWhereAThresholdIsCrossedAndOnlyThere) {
  struct Case {
    const char* what;
    Made below, beyond;
    const char* advice;
  };
  const std::vector<Case> cases = {{"utilisation",
                                    {.strategy = "zero2", .utilisation = 70},
                                    {.strategy = "zero2", .utilisation = 69.9},
                                    "is under 70%: take a larger batch"},
                                   {"data",
                                    {.strategy = "zero2", .load_ms = 10},
                                    {.strategy = "zero2", .load_ms = 10.5},
                                    "a token store would not"},
                                   {"communication",
                                    {.strategy = "zero2", .exposed_ms = 18.5},
                                    {.strategy = "zero2", .exposed_ms = 19.5},
                                    "fast link (NVLink, InfiniBand)"},
                                   {"communication of zero3",
                                    {.strategy = "zero3", .exposed_ms = 18.5},
                                    {.strategy = "zero3", .exposed_ms = 19.5},
                                    "zero2 gathers parameters once per step"},
                                   {"memory",
                                    {.strategy = "zero2"},
                                    {.strategy = "zero2", .outcome = "oom"},
                                    "Out of memory: zero2 bs4 ga1."}};
  for (const Case& one : cases) {
    EXPECT_THAT(words_on({one.below}), Not(HasSubstr(one.advice))) << one.what;
    EXPECT_THAT(words_on({one.beyond}), HasSubstr(one.advice)) << one.what;
  }
}

TEST(ZeroVerdict, FastPathsAreNamedWithWhatKeptThemOff) {
  std::vector<json> records =
      records_of({{.strategy = "zero2"}, {.strategy = "zero2", .accumulation = 2}});
  EXPECT_THAT(
      verdict_on(records).findings,
      Contains(HasSubstr("Fast paths: CUDA graph on; fused kernels on; attention by cudnn.")));
  records[1]["graph"] = "off: several micro-batches are timed";
  EXPECT_THAT(verdict_on(records).findings,
              Contains(HasSubstr("off: several micro-batches are timed (1 of 2); on (1 of 2)")));
}

TEST(ZeroVerdict, SyntheticTokensAndModelledCommunicationAreSaid) {
  std::vector<json> records = records_of({{.strategy = "zero2"}});
  EXPECT_THAT(join(verdict_on(records).caveats, "\n"), Not(HasSubstr("synthetic")));
  records[0].erase("data");
  records[0]["simulated"] = true;
  records[0]["modelled_step_ms"] = 125.0;
  records[0]["link_gb_per_s"] = 50.0;
  records[0]["communication"]["gather"]["modelled_exposed_ms"] = 50.0;
  const Verdict verdict = verdict_on(records);
  EXPECT_THAT(join(verdict.caveats, "\n"), HasSubstr("synthetic tokens"));
  EXPECT_THAT(join(verdict.caveats, "\n"), HasSubstr("communication modelled at 50 GB/s"));
  EXPECT_THAT(join(verdict.findings, "\n"), HasSubstr("loses 41% to it"));  // 50 + 1 of 125 ms
}

TEST(ZeroReport, EveryPromisedFileIsWrittenAndModelledFiguresSaySoInEveryPlot) {
  test::Folder folder;
  std::vector<json> records = records_of({{.strategy = "zero2", .batch = 2},
                                          {.strategy = "zero2", .batch = 16},
                                          {.strategy = "zero3", .batch = 2},
                                          {.strategy = "zero3", .batch = 16, .outcome = "oom"}});
  for (json& record : records) {
    record["simulated"] = true;
    record["modelled_step_ms"] = 120.0;
    record["link_gb_per_s"] = 50.0;
  }
  folder.write_records(records);
  const ReportFiles report = write_report(folder.path(), "");
  for (const char* name : {"comparison.csv", "raw_metrics.json", "summary.txt", "index.html"})
    EXPECT_THAT(report.files, Contains(name));
  for (const char* name : {"tokens_per_second", "memory", "communication_overhead",
                           "utilisation_heatmap", "overhead_breakdown"}) {
    const std::string path = std::string("visualizations/") + name;
    EXPECT_THAT(folder.read(path + ".gp"), HasSubstr("(comm. modelled, 50 GB/s)'")) << name;
    if (std::system("gnuplot --version > /dev/null 2>&1") == 0) {
      EXPECT_EQ(report.plots_hint, "");
      EXPECT_EQ(folder.read(path + ".png").substr(1, 3), "PNG") << name;
    }
  }
  const std::vector<std::string> lines = split(folder.read("comparison.csv"), '\n');
  ASSERT_EQ(lines.size(), 6u);  // a header, four records and the end
  const std::vector<std::string> header = split(lines[0], ','), cells = split(lines[1], ',');
  const auto cell = [&](const std::string& name) {
    const auto at = std::find(header.begin(), header.end(), name) - header.begin();
    return cells.at(static_cast<size_t>(at));
  };
  EXPECT_EQ(cell("strategy"), "zero2");
  EXPECT_EQ(cell("communication_modelled"), "true");
  // of the rank that holds most
  EXPECT_EQ(cell("peak_memory_bytes"), std::to_string(20 * kGiB + 1024));
  EXPECT_EQ(std::stod(cell("step_ms")), 120);
  EXPECT_EQ(std::stod(cell("epoch_seconds")), 1.2);
  EXPECT_EQ(std::stod(cell("gather_exposed_ms")), 5);
  const json raw = json::parse(folder.read("raw_metrics.json"));
  ASSERT_EQ(raw.size(), 4u);
  EXPECT_THAT(raw, ::testing::Each(::testing::Truly([&](const json& one) {
                return std::find(records.begin(), records.end(), one) != records.end();
              })));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("ZeRO 2 or ZeRO 3"));
  EXPECT_THAT(report.summary, HasSubstr("tokens/s"));
}

}  // namespace
}  // namespace veil
