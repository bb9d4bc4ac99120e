// veil suite linear, as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "cli/program.h"
#include "comm/communicator.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::vector<std::string> kSetUps = {"ddp", "fsdp", "fsdp_memory", "fsdp_performance"};

class ProgramSuite : public ProgramTest {
 protected:
  static fs::path record_in(const fs::path& run, const std::string& set_up) { return run / (set_up + "_result.json"); }
  // The one folder that a suite made below `parent`.
  static fs::path only_run(const fs::path& parent) {
    const std::vector<fs::path> runs(fs::directory_iterator(parent), fs::directory_iterator{});
    EXPECT_EQ(runs.size(), 1u);
    return runs.at(0);
  }
};

TEST_F(ProgramSuite, FourSetUpsLeaveFourRecordsAndATableAndAreNotRunAgain) {
  const std::string ranks = built_with_mpi() ? " --ranks 2" : "";
  const std::string words = "suite linear --preset tiny --device cpu --batch-size 32 --iterations 2" + ranks;
  const Answer answer = veil(words + " --output-dir results");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const fs::path run = only_run(work() / "results");
  EXPECT_THAT(run.filename().string(), ::testing::MatchesRegex("run_[0-9]+_[0-9]+"));
  std::map<std::string, fs::file_time_type> written;
  for (const std::string& set_up : kSetUps) {
    ASSERT_TRUE(fs::exists(record_in(run, set_up))) << set_up;
    const Json record = read(record_in(run, set_up));
    EXPECT_EQ(record["outcome"], "ok") << set_up;
    EXPECT_EQ(record["experiment"], set_up);
    EXPECT_EQ(record["suite"], "linear");
    EXPECT_EQ(record["world"], built_with_mpi() ? 2 : 1);
    written[set_up] = fs::last_write_time(record_in(run, set_up));
  }
  EXPECT_EQ(read(record_in(run, "ddp"))["config"]["strategy"], "ddp");
  EXPECT_EQ(read(record_in(run, "fsdp_memory"))["config"]["cpu-offload"], true);
  EXPECT_EQ(read(record_in(run, "fsdp_performance"))["config"]["backward-prefetch"], "post");
  const std::string table = answer.out.substr(answer.out.find("\nset-up "));
  for (const char* title : {"basic DDP", "basic FSDP", "memory-optimised FSDP", "performance-optimised FSDP"}) {
    EXPECT_THAT(table, HasSubstr(title));
  }

  const Answer again = veil(words + " --resume '" + run.string() + "'");
  EXPECT_EQ(again.code, kExitDone) << again.err;
  for (const std::string& set_up : kSetUps) {
    EXPECT_EQ(fs::last_write_time(record_in(run, set_up)), written[set_up]) << set_up << " was run again";
  }
  EXPECT_THAT(again.out.substr(again.out.find("\nset-up ")), HasSubstr("performance-optimised FSDP"));

  fs::remove(record_in(run, "fsdp"));
  EXPECT_EQ(veil(words + " --resume '" + run.string() + "'").code, kExitDone);
  EXPECT_EQ(read(record_in(run, "fsdp"))["outcome"], "ok");
  EXPECT_EQ(fs::last_write_time(record_in(run, "ddp")), written["ddp"]);
}

TEST_F(ProgramSuite, AnExperimentThatFailsLeavesItsLastWordsAndTheOthersRun) {
  fs::create_directory(work() / "run");
  std::ofstream(work() / "run" / "traces") << "a file where the traces' folder should be";
  const Answer answer = veil("suite linear --preset tiny --device cpu --resume run");
  EXPECT_EQ(answer.code, kExitFailed) << answer.err;
  for (const std::string& set_up : kSetUps) {
    const Json record = read(record_in(work() / "run", set_up));
    EXPECT_EQ(record["outcome"], "error") << set_up;
    EXPECT_THAT(record["message"].get<std::string>(), HasSubstr("not a folder"));
  }
  EXPECT_THAT(answer.out, HasSubstr("error"));

  fs::remove(work() / "run" / "traces");
  EXPECT_EQ(veil("suite linear --preset tiny --device cpu --resume run").code, kExitDone);
  EXPECT_EQ(read(record_in(work() / "run", "fsdp"))["outcome"], "ok");
}

TEST_F(ProgramSuite, RecordsToStandardOutputAreAllThatStandsThere) {
  const Answer answer = veil("suite linear --preset tiny --device cpu --iterations 1 --json");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json records = Json::parse(answer.out);
  ASSERT_EQ(records.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(records[i]["experiment"], kSetUps[i]);
}

}  // namespace
}  // namespace veil
