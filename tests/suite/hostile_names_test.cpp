// Names in records are text, whoever wrote them: no page, picture, script or file name may make
// something else of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "report/peers.h"
#include "report/test_records.h"
#include "report/training_page.h"
#include "suite/suite.h"

namespace veil::hostile_names_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Becomes an element of a page, a command of gnuplot or of a shell, and another folder.
const char* const kMarkup = "<script>alert(1)</script>";
const char* const kCommand = "x'; system('touch pwned'); y='\n!touch pwned\n`touch pwned`";
const char* const kPath = "../../pwned";

// One experiment of each mode that a suite has, with these names wherever a record has a name.
std::vector<nlohmann::json> hostile_records(const std::string& suite) {
  std::vector<nlohmann::json> records;
  const std::vector<std::string> names = {kMarkup, kCommand, kPath};
  for (size_t n = 0; n < names.size(); ++n) {
    for (const int64_t length : {256, 512}) {
      const double t = static_cast<double>(length);
      nlohmann::json r = {
          {"suite", suite},
          {"experiment", names[n] + std::to_string(length)},
          {"title", names[n] + ", T=" + std::to_string(length)},
          {"mode", names[n]},
          {"outcome", "ok"},
          {"message", names[n]},
          {"device", names[n]},
          {"attention", length == 256 ? names[n] : "math"},
          {"batch_size", 8},
          {"seq_length", length},
          {"world", 1},
          {"avg_time_ms", t},
          {"std_time_ms", 1},
          {"times_ms", {t - 1, t, t + 1}},
          {"tokens_per_second", 1000},
          {"peak_memory_bytes", 1 << 30},
          {"notices", {names[n]}},
          {"graph", names[n]},
          {"fused_kernels", names[n]},
          {"command", names[n]},
          {"breakdown", {{"activations", 1 << 29}, {names[n], 1 << 29}}},
          {"memory_rows",
           {{{"part", names[n]},
             {"row", 0},
             {"op", names[n]},
             {"on", names[n]},
             {"after", {{names[n], 1 << 29}}},
             {"peak_bytes", 1 << 30}}}},
          {"communication", {{names[n], {{"total_ms", 5}, {"exposed_ms", 2}, {"bytes", 1e6}}}}},
          {"config", {{"model", names[n]}, {"strategy", names[n]}, {names[n], names[n]}}}};
      r["phases"] = {{"forward", {{"ms", t / 2}}}, {names[n], {{"ms", t / 4}}}};
      r["phases"]["layers"] = {{"norms " + names[n], t / 8}, {"norms layers.0", t / 8}};
      records.push_back(r);
    }
  }
  return records;
}

// Nothing in the folder is markup, another file or the work of a command.
void expect_text_only(const test::Folder& folder, const std::string& what) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("pwned")) << what;
    const std::string ending = entry.path().extension().string();
    if (ending != ".html" && ending != ".svg" && ending != ".md") continue;
    const std::string content =
        folder.read(fs::relative(entry.path(), folder.path()).generic_string());
    EXPECT_THAT(content, Not(HasSubstr("<script"))) << what << " " << name;
  }
  EXPECT_FALSE(fs::exists("pwned")) << what;
}

TEST(HostileNames, StayTextInTheFilesOfEverySuite) {
  for (const char* const suite :
       {"llama3-dp", "bottlenecks", "zero", "linear", "dit-dp", "checkpointing"}) {
    test::Folder folder;
    int file = 0;
    for (const nlohmann::json& record : hostile_records(suite))
      folder.write(std::to_string(file++) + "_result.json", record.dump());
    const ReportFiles report = test::write_report(folder.path(), folder.path("out"));
    if (std::system("gnuplot --version > /dev/null 2>&1") == 0) {
      EXPECT_EQ(report.plots_hint, "") << suite;
    }
    expect_text_only(folder, suite);
    EXPECT_THAT(folder.read("out/index.html"), HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"))
        << suite;
  }
}

TEST(HostileNames, OfOtherSoftwareStayText) {
  test::Folder folder;
  std::vector<nlohmann::json> peers;
  for (const char* const mode : {"no_dp", "flash"}) {
    nlohmann::json record = hostile_records("llama3-dp")[0];
    record["mode"] = mode;
    folder.write(std::string(mode) + "_result.json", record.dump());
    for (const char* const name : {kMarkup, kCommand, kPath})
      peers.push_back({{"lib", name}, {"mode", mode}, {"seq", 256}, {"batch", 8}, {"ms", 10.0}});
  }
  folder.write("peers.json", nlohmann::json(peers).dump());
  const ReportFiles report = write_report(folder.path(), folder.path("out"), suite_pages(), false,
                                          read_peers(folder.path("peers.json")));
  EXPECT_THAT(report.files, ::testing::Contains(HasSubstr("privacy_cost.gp")));
  expect_text_only(folder, "peers");
}

TEST(HostileNames, OfATrainingRunStayText) {
  test::Folder folder;
  std::string lines;
  for (const int step : {1, 2})
    lines += nlohmann::json({{"step", step},
                             {"loss", 3.0 / step},
                             {"learning_rate", 0.1},
                             {"seconds", 1.0},
                             {"tokens_per_second", 10.0},
                             {"peak_memory_bytes", 1000}})
                 .dump() +
             "\n";
  folder.write("metrics.jsonl", lines);
  folder.write("settings.json",
               nlohmann::json({{"model", kMarkup}, {"data", kCommand}, {kMarkup, kPath}}).dump());
  write_training_report(folder.path(), folder.path("out"));
  expect_text_only(folder, "a training run");
  EXPECT_THAT(folder.read("out/index.html"), HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

}  // namespace
}  // namespace veil::hostile_names_test
