// What each suite's tiny preset leaves behind, file by file: the names that other
// profilers of private training use, and Veil's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "base/error.h"
#include "cli/program.h"
#include "comm/communicator.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr double kMostSeconds = 180;  // of a tiny preset on two cores

struct Tree {
  std::vector<std::string> experiments;  // <name>_result.json and <name>.log each
  std::vector<std::string> plots;        // visualizations/<name>.png, .svg and .gp each
  std::vector<std::string> others = {};
  bool timelines = true;  // a memory_timeline_<name> for each experiment
};

class ProgramSuiteTree : public ProgramTest {
 protected:
  // Runs the suite as a person does, and compares what lies in its folder: nothing is missing,
  // nothing is there besides.
  void expect_tree(const std::string& suite, const std::string& parent, const Tree& tree,
                   const std::string& more = "") {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = veil("suite " + suite + " --preset tiny --device cpu" + more);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
    EXPECT_LT(took.count(), kMostSeconds);
    const std::vector<fs::path> runs(fs::directory_iterator(work() / parent),
                                     fs::directory_iterator{});
    ASSERT_EQ(runs.size(), 1u);
    const fs::path& run = runs[0];
    EXPECT_THAT(run.filename().string(), ::testing::MatchesRegex("run_[0-9]{8}_[0-9]{6}"));

    std::set<std::string> expected = {"index.html",
                                      "summary.csv",
                                      "summary.md",
                                      "summary.txt",
                                      "sweep.json",
                                      ".veil_files.json",
                                      "visualizations/.veil_files.json"},
                          traces;
    expected.insert(tree.others.begin(), tree.others.end());
    const bool drawn = std::system("gnuplot --version > /dev/null 2>&1") == 0;
    const auto plot = [&](const std::string& name) {
      for (const char* const ending : {".png", ".svg", ".gp"}) {
        if (drawn || std::string(ending) == ".gp")
          expected.insert("visualizations/" + name + ending);
      }
    };
    for (const std::string& name : tree.plots) plot(name);
    for (const std::string& name : tree.experiments) {
      expected.insert({name + "_result.json", name + ".log"});
      if (tree.timelines) plot("memory_timeline_" + name);
      ASSERT_TRUE(fs::exists(run / (name + "_result.json"))) << name;
      const Json record = read(run / (name + "_result.json"));
      EXPECT_EQ(record["outcome"].get<std::string>(), "ok") << name;
      for (const Json& trace : record["traces"]) traces.insert(trace.get<std::string>());
    }
    // Traces are named by process and time, as TensorBoard's plugin wants them: the records say
    // which there are.
    std::set<std::string> found, found_traces;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = fs::relative(entry.path(), run).generic_string();
      (name.starts_with("traces/") ? found_traces : found).insert(name);
    }
    EXPECT_EQ(found, expected);
    for (const std::string& trace : traces) EXPECT_TRUE(found_traces.count(trace)) << trace;
    EXPECT_GE(found_traces.size(), tree.experiments.size());
    for (const std::string& name : expected) {
      EXPECT_GT(fs::file_size(run / name), name.ends_with(".log") ? 0u : 20u) << name;
    }
  }
};

// As other profilers of private training name them: results/run_*/{mode}_seq{N}_result.json,
// visualizations/{memory_comparison,time_comparison,memory_vs_time_tradeoff,overhead_analysis}.png,
// summary.txt
TEST_F(ProgramSuiteTree, Llama3Dp) {
  Tree tree;
  for (const char* const mode : {"no_dp", "ghost_fsdp", "flash_fsdp", "auto"}) {
    for (const char* const length : {"64", "128", "256"})
      tree.experiments.push_back(std::string(mode) + "_seq" + length);
  }
  tree.plots = {"memory_comparison", "time_comparison", "memory_vs_time_tradeoff",
                "overhead_analysis", "phase_breakdown", "memory_breakdown",
                "privacy_cost"};
  tree.others = {"visualizations/summary.txt"};
  expect_tree("llama3-dp", "results", tree);
}

TEST_F(ProgramSuiteTree, Bottlenecks) {
  Tree tree;
  for (const char* const mode : {"flash", "bookkeeping"}) {
    for (const char* const length : {"64", "128", "256", "512"})
      tree.experiments.push_back(std::string(mode) + "_seq" + length);
  }
  tree.plots = {
      "phases_by_length", "time_scaling",     "time_scaling_flash", "time_scaling_bookkeeping",
      "memory_scaling",   "memory_breakdown", "norms_by_layer"};
  tree.others = {"visualizations/summary.txt", "scaling.csv"};
  expect_tree("bottlenecks", "results", tree);
}

// comparison_results/ with five plots, a CSV table and raw metrics
TEST_F(ProgramSuiteTree, Zero) {
  Tree tree;
  for (const char* const strategy : {"ddp", "zero2", "zero3"}) {
    for (const char* const batch : {"2", "8"}) {
      for (const char* const accumulation : {"1", "2"})
        tree.experiments.push_back(std::string(strategy) + "_bs" + batch + "_ga" + accumulation);
    }
  }
  tree.plots = {"tokens_per_second", "memory", "communication_overhead", "utilisation_heatmap",
                "overhead_breakdown"};
  tree.others = {"comparison.csv", "raw_metrics.json"};
  tree.timelines = false;
  expect_tree("zero", "comparison_results", tree);
}

TEST_F(ProgramSuiteTree, Linear) {
  expect_tree(
      "linear", "results",
      {.experiments = {"ddp", "fsdp", "fsdp_memory", "fsdp_performance"},
       .plots = {"time_comparison", "phase_breakdown", "memory_breakdown", "memory_stages"}});
}

// memory_profiling_results/run_*/{vanilla,ghost,...}_result.json,
// visualizations/{memory_breakdown_comparison,memory_timeline,performance_tradeoff}.png,
// summary.txt
TEST_F(ProgramSuiteTree, DitDp) {
  expect_tree("dit-dp", "memory_profiling_results",
              {.experiments = {"vanilla", "ghost", "flash_clip", "bookkeeping",
                               "flash_clip_bookkeeping", "auto"},
               .plots = {"memory_breakdown_comparison", "memory_timeline", "performance_tradeoff",
                         "time_comparison", "phase_breakdown", "memory_stages", "privacy_cost"},
               .others = {"visualizations/summary.txt"}});
}

TEST_F(ProgramSuiteTree, Checkpointing) {
  expect_tree(
      "checkpointing", "results",
      {.experiments = {"none", "selective", "full"},
       .plots = {"time_comparison", "phase_breakdown", "memory_breakdown", "memory_stages"}});
}

}  // namespace
}  // namespace veil
