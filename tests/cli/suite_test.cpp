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
  static fs::path record_in(const fs::path& run, const std::string& set_up) {
    return run / (set_up + "_result.json");
  }
  // The one folder that a suite made below `parent`.
  static fs::path only_run(const fs::path& parent) {
    const std::vector<fs::path> runs(fs::directory_iterator(parent), fs::directory_iterator{});
    EXPECT_EQ(runs.size(), 1u);
    return runs.at(0);
  }
};

TEST_F(ProgramSuite, FourSetUpsLeaveFourRecordsAndATableAndAreNotRunAgain) {
  const std::string ranks = built_with_mpi() ? " --ranks 2" : "";
  const std::string words =
      "suite linear --preset tiny --device cpu --batch-size 32 --iterations 2" + ranks;
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
    EXPECT_EQ(record["world"], built_with_mpi() ? 2 : 8);
    EXPECT_EQ(record["simulated"], !built_with_mpi()) << "ranks that are asked for are real";
    written[set_up] = fs::last_write_time(record_in(run, set_up));
  }
  EXPECT_EQ(read(record_in(run, "ddp"))["config"]["strategy"], "ddp");
  EXPECT_EQ(read(record_in(run, "fsdp_memory"))["config"]["cpu-offload"], true);
  EXPECT_EQ(read(record_in(run, "fsdp_performance"))["config"]["backward-prefetch"], "post");
  const std::string table = answer.out.substr(answer.out.find("\nset-up "));
  for (const char* title :
       {"basic DDP", "basic FSDP", "memory-optimised FSDP", "performance-optimised FSDP"}) {
    EXPECT_THAT(table, HasSubstr(title));
  }

  const Answer again = veil(words + " --resume '" + run.string() + "'");
  EXPECT_EQ(again.code, kExitDone) << again.err;
  for (const std::string& set_up : kSetUps) {
    EXPECT_EQ(fs::last_write_time(record_in(run, set_up)), written[set_up])
        << set_up << " was run again";
  }
  EXPECT_THAT(again.out.substr(again.out.find("\nset-up ")),
              HasSubstr("performance-optimised FSDP"));

  fs::remove(record_in(run, "fsdp"));
  EXPECT_EQ(veil(words + " --resume '" + run.string() + "'").code, kExitDone);
  EXPECT_EQ(read(record_in(run, "fsdp"))["outcome"], "ok");
  EXPECT_EQ(fs::last_write_time(record_in(run, "ddp")), written["ddp"]);
}

TEST_F(ProgramSuite, AnExperimentThatFailsLeavesItsLastWordsAndTheOthersRun) {
  fs::create_directory(work() / "run");
  std::ofstream(work() / "run" / ".veil_files.json")
      << R"({"written_by": "veil", "files": {}})";  // a folder of Veil's
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
  // The tiny preset shows what sharding is for.
  EXPECT_LT(records[1]["peak_memory_bytes"].get<double>(),
            0.5 * records[0]["peak_memory_bytes"].get<double>());
}

// The command line of a ZeRO comparison script, word for word after the program's name.
TEST_F(ProgramSuite, TheZeroSuiteTakesTheSeedsWordsAndListsItsExperiments) {
  fs::create_directory(work() / "data");
  const std::string seed =
      "suite zero --data_folder=data --batch_sizes 2 4 8 16 --grad_accum_steps 1 2 4 "
      "--num_steps=50 --nproc_per_node=2 "
      "--output_dir=comparison_results --device cpu --dry-run --json";
  const Answer answer = veil(seed);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json plan = Json::parse(answer.out);
  ASSERT_EQ(plan.size(), 24u);
  const Json defaults = Json::parse(veil("suite zero --device cpu --dry-run --json").out);
  ASSERT_EQ(defaults.size(), 24u);
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(defaults[i]["experiment"], plan[i]["experiment"]);
    for (const Json* list : {&plan, &defaults}) {
      std::string words;
      for (const auto& word : (*list)[i]["arguments"]) words += word.get<std::string>() + " ";
      for (const char* piece : {"--model qwen1.5-1.8b ", "--seq-length 2048 ", "--iterations 50 ",
                                "--ranks 2 ", "--data data "})
        EXPECT_THAT(words, HasSubstr(piece)) << i;
    }
  }
  EXPECT_FALSE(fs::exists(work() / "comparison_results"));
  const Json three =
      Json::parse(veil("suite zero --strategies ddp,shard_grad_op,full_shard --batch-sizes 2 "
                       "--accumulations 1 --simulate-world 8 --device cpu --dry-run --json")
                      .out);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0]["experiment"], "ddp_bs2_ga1");
  EXPECT_THAT(three[1]["arguments"].dump(), HasSubstr("simulate-world"));
  EXPECT_THAT(three[1]["arguments"].dump(), ::testing::Not(HasSubstr("--ranks")));
}

TEST_F(ProgramSuite, TheZeroSuiteRefusesWhatItDecidesItselfAndWhatIsNotThere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--strategy zero2", "--strategies"},       {"--batch-size 2", "--batch-sizes"},
      {"--accumulation 2", "--accumulations"},    {"--batch-sizes 2 2", "given twice"},
      {"--strategies zero4", "allowed are ddp"},  {"--data nowhere", "no such folder"},
      {"--model linear-stack", "language model"}, {"--simulate-world 2 --ranks 2", "one process"}};
  for (const auto& [words, says] : cases) {
    const Answer answer = veil("suite zero --device cpu " + words);
    EXPECT_EQ(answer.code, kExitUsage) << words;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(says)) << words;
    EXPECT_FALSE(fs::exists(work() / "comparison_results")) << words;
  }
}

TEST_F(ProgramSuite, TheZeroSuiteLeavesItsTreeAndItsAnswer) {
  fs::create_directory(work() / "data");
  std::ofstream(work() / "data" / "text.txt") << std::string(5000, 'a');
  const std::string ranks = built_with_mpi() ? " --ranks 2" : "";
  const Answer answer = veil(
      "suite zero --preset tiny --device cpu --batch-sizes 2 --accumulations 1,2 --iterations 2" +
      ranks);
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const fs::path run = only_run(work() / "comparison_results");
  for (const char* name : {"zero2_bs2_ga1", "zero2_bs2_ga2", "zero3_bs2_ga1", "zero3_bs2_ga2"}) {
    const Json record = read(record_in(run, name));
    EXPECT_EQ(record["outcome"], "ok") << name;
    EXPECT_EQ(record["suite"], "zero");
    EXPECT_EQ(record["data"]["source"], "data");
    EXPECT_GT(record["tokens_per_second"].get<double>(), 0);
  }
  for (const char* file :
       {"comparison.csv", "raw_metrics.json", "summary.txt", "summary.md", "index.html",
        "visualizations/tokens_per_second.gp", "visualizations/memory.gp",
        "visualizations/communication_overhead.gp", "visualizations/utilisation_heatmap.gp",
        "visualizations/overhead_breakdown.gp"})
    EXPECT_TRUE(fs::exists(run / file)) << file;
  EXPECT_THAT(answer.out, HasSubstr("ZeRO 2 or ZeRO 3"));
  EXPECT_THAT(answer.out, HasSubstr("Take "));
  EXPECT_THAT(answer.out, HasSubstr("Fast paths: CUDA graph off: no GPU"));
}

}  // namespace
}  // namespace veil
