#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cli/command.h"
#include "report/test_records.h"

namespace veil::report_test {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer report_says(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "report");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_veil(arguments);
  std::fflush(stdout);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

void expect_one_line(const Answer& answer) {
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
  EXPECT_EQ(answer.out, "");
}

TEST(ReportCommand, ItPrintsTheTableAndSaysWhereThePageIs) {
  const test::Folder folder;
  folder.write_records(test::linear_suite_records());
  folder.write("bad_result.json", "{");
  const Answer answer = report_says({folder.path(), "--output-dir", folder.path("out")});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("memory-optimised FSDP"));
  EXPECT_THAT(answer.out, HasSubstr(folder.path("out/index.html")));
  EXPECT_THAT(answer.err, HasSubstr("'bad_result.json' is left out"));
  EXPECT_TRUE(std::filesystem::exists(folder.path("out/index.html")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("index.html")));
}

TEST(ReportCommand, NoFolderNoRecordOrNoPlaceToWriteIsOneLineAndExitCodeTwo) {
  const test::Folder folder;
  expect_one_line(report_says({}));
  expect_one_line(report_says({folder.path("nowhere")}));
  expect_one_line(report_says({folder.path()}));
  folder.write_records(test::linear_suite_records());
  folder.write("file", "x");
  const Answer unwritable = report_says({folder.path(), "--output-dir", folder.path("file/below")});
  expect_one_line(unwritable);
  EXPECT_THAT(unwritable.err, HasSubstr("file"));
  // refused even to root
  expect_one_line(report_says({folder.path(), "--output-dir", "/proc/veil"}));
}

TEST(ReportCommand, AFolderOfTrainingRunsIsAnsweredWithTheCommandsThatShowThem) {
  const test::Folder folder;
  const std::string older = folder.path("run_20260101_000000"),
                    newer = folder.path("run_20260102_000000");
  for (const std::string& run : {newer, older}) {
    std::filesystem::create_directories(run);
    std::ofstream(run + "/metrics.jsonl") << "{}\n";
    const Answer answer = report_says({folder.path()});
    expect_one_line(answer);
    EXPECT_THAT(answer.err, HasSubstr("`veil report " + newer + "`"));
  }
  EXPECT_THAT(report_says({folder.path()}).err,
              HasSubstr("`veil report " + older + " " + newer + "` compares"));
}

}  // namespace
}  // namespace veil::report_test
