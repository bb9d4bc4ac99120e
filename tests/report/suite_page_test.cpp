#include "report/suite_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/report.h"
#include "report/test_records.h"

namespace veil {
namespace {

using nlohmann::json;
using test::Folder;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SuitePage, NoticesOfRecordsAreInTheSummaryAndOnThePageOnceEach) {
  Folder folder;
  std::vector<json> records = test::linear_suite_records();
  for (json& record : records) record["notices"] = {"the weights are random"};
  records[0]["notices"].push_back("the CPUs were busy");
  folder.write_records(records);
  const ReportFiles report = test::write_report(folder.path(), "");
  const std::string page = folder.read("index.html");
  for (const std::string& text : {report.summary, page}) {
    EXPECT_THAT(text, HasSubstr("the weights are random"));
    EXPECT_THAT(text, HasSubstr("basic DDP: the CPUs were busy"));
  }
  const size_t first = report.summary.find("the weights are random");
  EXPECT_EQ(report.summary.find("the weights are random", first + 1), std::string::npos);
}

TEST(SuitePage, TheLinearSuiteTeachesWhatEachSetUpDoes) {
  Folder folder;
  folder.write_records(test::linear_suite_records());
  test::write_report(folder.path(), "");
  const std::string page = folder.read("index.html");
  EXPECT_THAT(page, HasSubstr("What the set-ups do"));
  EXPECT_THAT(page, HasSubstr("every rank holds all parameters"));
  EXPECT_THAT(page, HasSubstr("the shares in the host"));
}

TEST(SuitePage, TheBottleneckPageHasTheTimesOfLayersAtTheLongestLengthSlowestFirst) {
  Folder folder;
  for (const int64_t length : {1024, 2048}) {
    const double t = static_cast<double>(length) / 1024;
    folder.write_records(
        {{{"suite", "bottlenecks"},
          {"experiment", "flash_seq" + std::to_string(length)},
          {"title", "flash, T=" + std::to_string(length)},
          {"outcome", "ok"},
          {"mode", "flash"},
          {"seq_length", length},
          {"avg_time_ms", 30 * t},
          {"phases",
           {{"forward", {{"ms", 30 * t}}},
            {"layers", {{"backward layers.0", 7.5 * t}, {"backward layers.1", 8 * t}}}}},
          {"peak_memory_bytes", 1000000}}});
  }
  test::write_report(folder.path(), "");
  const std::string page = folder.read("index.html");
  EXPECT_THAT(page, HasSubstr("Time by layer"));
  const size_t slow = page.find("16.000"), fast = page.find("15.000");
  ASSERT_NE(slow, std::string::npos);
  ASSERT_NE(fast, std::string::npos);
  EXPECT_LT(slow, fast);
  EXPECT_THAT(page, Not(HasSubstr("7.500")));  // of the shorter length
}

}  // namespace
}  // namespace veil
