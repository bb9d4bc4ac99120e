#include "report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "report/html.h"
#include "report/test_records.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Folder;
using test::write_report;
using ::testing::HasSubstr;
using ::testing::Not;

// No cell of these has a comma or a quote in it.
std::vector<std::map<std::string, std::string>> csv_rows(const std::string& csv) {
  std::vector<std::map<std::string, std::string>> rows;
  const std::vector<std::string> lines = split(csv, '\n');
  const std::vector<std::string> header = split(lines.at(0), ',');
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::vector<std::string> cells = split(lines[i], ',');
    EXPECT_EQ(cells.size(), header.size());
    rows.emplace_back();
    for (size_t k = 0; k < header.size(); ++k) rows.back()[header[k]] = cells.at(k);
  }
  return rows;
}

bool gnuplot_here() {
  return std::system("gnuplot --version > /dev/null 2>&1") == 0;
}

// Runs without any program on PATH for a scope.
class EmptyPath {
 public:
  explicit EmptyPath(const std::string& folder) : before_(std::getenv("PATH")) {
    setenv("PATH", folder.c_str(), 1);
  }
  ~EmptyPath() { setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST(Report, EveryPromisedFileIsWrittenAndNamed) {
  Folder folder;
  folder.write_records(test::linear_suite_records());
  const ReportFiles report = write_report(folder.path(), folder.path("out"));
  for (const char* const name : {"summary.txt", "summary.csv", "summary.md", "index.html"})
    EXPECT_THAT(report.files, ::testing::Contains(name));
  for (const std::string& name : report.files)
    EXPECT_GT(fs::file_size(folder.path("out/" + name)), 100u) << name;
  EXPECT_EQ(folder.read("out/summary.txt"), report.summary);
  for (const char* const name :
       {"time_comparison", "memory_stages", "memory_breakdown", "phase_breakdown",
        "memory_timeline_ddp", "memory_timeline_fsdp_memory"}) {
    const std::string path = std::string("visualizations/") + name;
    EXPECT_THAT(report.files, ::testing::Contains(path + ".gp"));
    if (!gnuplot_here()) continue;
    EXPECT_EQ(report.plots_hint, "");
    EXPECT_THAT(report.files, ::testing::Contains(path + ".svg"));
    EXPECT_EQ(folder.read("out/" + path + ".png").substr(1, 3), "PNG");
  }
}

TEST(Report, TheNumbersInTheCsvAreThoseOfTheRecords) {
  Folder folder;
  const std::vector<json> records = test::linear_suite_records();
  folder.write_records(records);
  write_report(folder.path(), "");
  const auto rows = csv_rows(folder.read("summary.csv"));
  ASSERT_EQ(rows.size(), records.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& record = records[i];
    EXPECT_EQ(rows[i].at("experiment"), record["experiment"].get<std::string>());
    for (const char* const key :
         {"avg_time_ms", "std_time_ms", "modelled_step_ms", "peak_memory_gb", "peak_memory_mb"})
      EXPECT_EQ(std::stod(rows[i].at(key)), record[key].get<double>()) << key;
    EXPECT_EQ(rows[i].at("peak_memory_bytes"), record["peak_memory_bytes"].dump());
    EXPECT_EQ(rows[i].at("total_batch_size"), "65536");
    EXPECT_EQ(rows[i].at("seq_length"), "");
    EXPECT_EQ(rows[i].at("last_loss"), "0.37");
    for (const auto& [name, bytes] : record["breakdown"].items()) {
      if (bytes == 0) continue;  // a category that no record uses has no column
      EXPECT_EQ(rows[i].at("peak_" + name + "_bytes"), bytes.dump()) << name;
    }
    for (const auto& [name, phase] : record["phases"].items())
      EXPECT_EQ(std::stod(rows[i].at(name + "_ms")), phase["ms"].get<double>()) << name;
    EXPECT_EQ(std::stod(rows[i].at("reduce_exposed_ms")), 12.5);
    EXPECT_EQ(rows[i].at("gather_total_ms").empty(),
              record["experiment"].get<std::string>() == "ddp");
    EXPECT_EQ(rows[i].at("after_data_bytes"), "1073741824");
  }
}

TEST(Report, RecordsComeInTheOrderTheyGiveAndOtherwiseByName) {
  Folder folder;
  std::vector<json> records = test::linear_suite_records();
  records[0]["order"] = 2;
  records[3]["order"] = 1;
  folder.write_records(records);
  std::vector<std::string> names;
  for (const Record& record : read_records(folder.path()).records)
    names.push_back(record.experiment);
  EXPECT_THAT(names, ::testing::ElementsAre("fsdp_speed", "ddp", "fsdp", "fsdp_memory"));
}

TEST(Report, ADamagedRecordIsLeftOutAndNamedWithItsReason) {
  Folder folder;
  folder.write_records(test::linear_suite_records());
  folder.write("cut_result.json", "{\"schema\": 1, \"experiment\": \"cut\", ");
  folder.write("future_result.json", "{\"schema\": 99}");
  folder.write("list_result.json", "[1]");
  folder.write("range_result.json", "{\"avg_time_ms\": 1e999}");
  folder.write("typed_result.json", "{\"avg_time_ms\": \"soon\"}");
  const ReportFiles report = write_report(folder.path(), "");
  std::map<std::string, std::string> reasons;
  for (const DamagedRecord& damaged : report.damaged) reasons[damaged.file] = damaged.reason;
  ASSERT_EQ(reasons.size(), 5u);
  EXPECT_THAT(reasons["cut_result.json"], HasSubstr("not whole JSON"));
  EXPECT_THAT(reasons["future_result.json"], HasSubstr("schema 99 is newer"));
  EXPECT_THAT(reasons["list_result.json"], HasSubstr("no JSON object"));
  EXPECT_THAT(reasons["range_result.json"], HasSubstr("out of range"));
  EXPECT_THAT(reasons["typed_result.json"],
              HasSubstr("'avg_time_ms' is a string, expected is a number"));
  for (const char* const file : {"summary.txt", "summary.md", "index.html"})
    EXPECT_THAT(folder.read(file), HasSubstr("left out"));
  EXPECT_EQ(csv_rows(folder.read("summary.csv")).size(), 4u);
}

TEST(Report, ARecordOfNothingIsShownWithStrokes) {
  Folder folder;
  folder.write("empty_result.json", "{}");
  folder.write("nulls_result.json",
               R"({"schema":1,"avg_time_ms":null,"stages":null,"breakdown":null,"losses":[null]})");
  const ReportFiles report = write_report(folder.path(), "");
  EXPECT_TRUE(report.damaged.empty());
  EXPECT_THAT(report.summary, ::testing::ContainsRegex("empty +- +- +- +-"));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("nulls"));
}

TEST(Report, AFolderWithoutRecordsIsAUserErrorAndNothingIsWritten) {
  Folder folder;
  EXPECT_THROW(write_report(folder.path("nowhere"), ""), UserError);
  EXPECT_THROW(write_report(folder.path(), folder.path("out")), UserError);
  folder.write("bad_result.json", "{");
  EXPECT_THROW(write_report(folder.path(), folder.path("out")), UserError);
  EXPECT_FALSE(fs::exists(folder.path("out")));
}

TEST(Report, WhereTheRecordsLieOneFolderDeeperTheMessageSaysSo) {
  Folder folder;
  folder.write("run_1/ddp_result.json", "{}");
  try {
    write_report(folder.path(), "");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("below, in '" + folder.path("run_1") + "'"));
  }
}

TEST(Report, ThePageNamesEveryExperimentAndAsksNothingOfTheNetwork) {
  Folder folder;
  const std::vector<json> records = test::linear_suite_records();
  folder.write_records(records);
  write_report(folder.path(), folder.path("out"));
  const std::string page = folder.read("out/index.html");
  for (const json& record : records) {
    EXPECT_THAT(page, HasSubstr(record["title"].get<std::string>()));
    EXPECT_THAT(page, HasSubstr("href=\"./../" + record["experiment"].get<std::string>() +
                                "_result.json\""));
    EXPECT_THAT(page, HasSubstr("href=\"./../traces/" + record["experiment"].get<std::string>() +
                                ".json\""));
  }
  for (const char* const word :
       {"http://", "https://", "<script", "<link", "@import", "url(", "<img", "xlink"})
    EXPECT_THAT(page, Not(HasSubstr(word)));
  for (const char* const word :
       {"DDP or FSDP", "prefers-color-scheme: dark", "@media print", "aria-label", "<figcaption>"})
    EXPECT_THAT(page, HasSubstr(word));
  if (!gnuplot_here()) return;
  size_t pictures = 0;
  for (size_t at = page.find("<svg "); at != std::string::npos; at = page.find("<svg ", at + 1))
    ++pictures;
  EXPECT_EQ(pictures, 8u);
  EXPECT_THAT(page, Not(HasSubstr(" id=\"gnuplot")));
  EXPECT_THAT(page, HasSubstr("var(--plot-ink)\" font-family"));
}

TEST(Report, HostileTextStaysText) {
  Folder folder;
  json record = test::linear_suite_records().front();
  record["title"] =
      "<script>alert(1)</script> \"'`touch pwned` $(touch pwned)\n@x {/:Bold b} | EOD\nEOD\n";
  record["experiment"] = "x\" onload=\"alert(1)";
  record["command"] = "veil </code><img src=x onerror=alert(1)>";
  record["traces"] = {"javascript:alert(1)", "//host/x", "https://host/y\" onclick=\"z"};
  record["config"]["<b>key"] = "</style><b>";
  record["memory_rows"][0]["part"] = "'; system('touch pwned'); '";
  record["breakdown"]["'\n!touch pwned\n<i>"] = 1 << 30;
  record["phases"]["`touch pwned`"] = {{"ms", 3}};
  folder.write("x_result.json", record.dump());
  const ReportFiles report = write_report(folder.path(), "");
  const std::string page = folder.read("index.html");
  EXPECT_EQ(report.plots_hint.empty(), gnuplot_here()) << report.plots_hint;
  for (const char* const word : {"<script", "<img", "<b>", "<i>", "</style><b>",
                                 "\"javascript:", "\"//host", "onclick=\"", "onload=\""})
    EXPECT_THAT(page, Not(HasSubstr(word)));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("javascript%3Aalert"));
  EXPECT_THAT(folder.read("summary.md"), Not(HasSubstr("<script")));
  EXPECT_FALSE(fs::exists(folder.path("visualizations/pwned")));
  EXPECT_FALSE(fs::exists("pwned"));
}

TEST(Report, WithoutGnuplotScriptsAreLeftAndOneLineSaysHowToDrawThem) {
  Folder folder;
  folder.write_records(test::linear_suite_records());
  ReportFiles report;
  {
    const EmptyPath none(folder.path("empty"));
    report = write_report(folder.path(), "");
  }
  EXPECT_THAT(report.plots_hint, HasSubstr("apt-get install gnuplot-nox"));
  EXPECT_EQ(report.plots_hint.find('\n'), std::string::npos);
  EXPECT_TRUE(fs::exists(folder.path("visualizations/time_comparison.gp")));
  EXPECT_FALSE(fs::exists(folder.path("visualizations/time_comparison.svg")));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("gnuplot is missing"));
  EXPECT_THAT(folder.read("index.html"), HasSubstr("1935 ms"));
}

// A picture that was announced and never drawn is nobody's: who puts one there keeps it.
TEST(Report, APictureThatWasNeverDrawnIsNotVeilsToReplace) {
  Folder folder;
  folder.write_records(test::linear_suite_records());
  {
    const EmptyPath none(folder.path("empty"));
    write_report(folder.path(), "");
    write_report(folder.path(), "");  // what it wrote itself is in nobody's way
  }
  folder.write("visualizations/time_comparison.png", "mine");
  EXPECT_THROW(write_report(folder.path(), ""), UserError);
  EXPECT_EQ(folder.read("visualizations/time_comparison.png"), "mine");
}

TEST(Report, AnAddressNeverLeavesThePagesHost) {
  EXPECT_EQ(address("a b/c_result.json"), "./a%20b/c_result.json");
  EXPECT_EQ(address("javascript:x"), "./javascript%3Ax");
  EXPECT_EQ(address("//host/x"), ".///host/x");
  EXPECT_EQ(escaped("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
}

}  // namespace
}  // namespace veil
