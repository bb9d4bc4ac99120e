// veil suite llama3-dp and bottlenecks, presets and sweeps, as a person runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "cli/program.h"
#include "comm/communicator.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramModeSuite : public ProgramTest {
 protected:
  static fs::path only_run(const fs::path& parent) {
    const std::vector<fs::path> runs(fs::directory_iterator(parent), fs::directory_iterator{});
    EXPECT_EQ(runs.size(), 1u);
    return runs.at(0);
  }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((work() / name).parent_path());
    std::ofstream(work() / name) << content;
  }
  Json plan_of(const std::string& words) const {
    const Answer answer = veil(words + " --dry-run --json");
    EXPECT_EQ(answer.code, kExitDone) << words << "\n" << answer.err;
    return answer.code == kExitDone ? Json::parse(answer.out) : Json::array();
  }
  static std::string arguments_of(const Json& experiment) {
    std::string words;
    for (const auto& word : experiment["arguments"]) words += word.get<std::string>() + " ";
    return words;
  }
};

// Seed 000's tree, file by file.
TEST_F(ProgramModeSuite, TheTinyLlamaSuiteLeavesTheSeedsTreeAndItsKeys) {
  const Answer answer = veil("suite llama3-dp --preset tiny --device cpu --seq-length 16,32,64");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const fs::path run = only_run(work() / "results");
  EXPECT_THAT(run.filename().string(), ::testing::MatchesRegex("run_[0-9]{8}_[0-9]{6}"));
  for (const char* const mode : {"no_dp", "ghost_fsdp", "flash_fsdp"}) {
    for (const int length : {16, 32, 64}) {
      const Json record = read(run / (std::string(mode) + "_seq" + std::to_string(length) + "_result.json"));
      EXPECT_EQ(record["mode"].get<std::string>(), mode);
      EXPECT_EQ(record["seq_length"].get<int>(), length);
      EXPECT_EQ(record["batch_size"].get<int>(), 2);
      EXPECT_EQ(record["times_ms"].size(), 3u);
      for (const char* const key : {"total_batch_size", "num_gpus", "peak_memory_mb", "peak_memory_gb", "avg_time_ms"})
        EXPECT_TRUE(record.contains(key)) << key;
      for (const char* const key : {"model_name", "vocab_size", "learning_rate", "sigma", "max_grad_norm"})
        EXPECT_TRUE(record["config"].contains(key)) << key;
      EXPECT_DOUBLE_EQ(record["config"]["learning_rate"].get<double>(), 1e-5);
      EXPECT_EQ(record["task"].get<std::string>(), "sequence-classification");
      EXPECT_EQ(record["config"]["labels"].get<int>(), 3);
    }
  }
  const bool drawn = std::system("gnuplot --version > /dev/null 2>&1") == 0;
  for (const char* const name :
       {"memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis"})
    EXPECT_TRUE(fs::exists(run / "visualizations" / (std::string(name) + (drawn ? ".png" : ".gp")))) << name;
  EXPECT_TRUE(fs::exists(run / "visualizations" / "summary.txt"));
  EXPECT_TRUE(fs::exists(run / "index.html"));
  EXPECT_THAT(answer.out, HasSubstr("time over no_dp"));
  for (const auto& entry : fs::directory_iterator(run))
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("running")));
}

TEST_F(ProgramModeSuite, WithoutAGpuTheLlamaSuiteOffersTheTinyPresetInOneLine) {
  if (gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  for (const char* const suite : {"llama3-dp", "bottlenecks"}) {
    const Answer answer = veil(std::string("suite ") + suite);
    EXPECT_EQ(answer.code, kExitMissing) << suite;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(std::string("veil suite ") + suite + " --preset tiny"));
    EXPECT_FALSE(fs::exists(work() / "results"));
  }
}

TEST_F(ProgramModeSuite, DefaultsAreTheSeedsAndADryRunTellsTheTime) {
  const Json plan = plan_of("suite llama3-dp");
  ASSERT_EQ(plan.size(), 9u);
  std::set<std::string> names;
  for (const Json& experiment : plan) {
    names.insert(experiment["experiment"].get<std::string>());
    const std::string words = arguments_of(experiment);
    for (const char* const piece :
         {"--model llama3.1-8b ", "--task sequence-classification ", "--labels 3 ", "--batch-size 2 ", "--warmup 1 ",
          "--iterations 3 ", "--sigma 1 ", "--clip-norm 1 ", "--learning-rate 1e-05 "})
      EXPECT_THAT(words, HasSubstr(piece));
    EXPECT_GT(experiment["estimated_seconds"].get<double>(), 0);
  }
  for (const char* const mode : {"no_dp", "ghost_fsdp", "flash_fsdp"}) {
    for (const char* const length : {"1024", "2048", "4096"})
      EXPECT_TRUE(names.count(std::string(mode) + "_seq" + length)) << mode << length;
  }
  // Modes of one length side by side.
  EXPECT_EQ(plan[0]["experiment"].get<std::string>(), "no_dp_seq1024");
  EXPECT_EQ(plan[1]["experiment"].get<std::string>(), "ghost_fsdp_seq1024");
  const Json bottlenecks = plan_of("suite bottlenecks");
  ASSERT_EQ(bottlenecks.size(), 10u);
  EXPECT_THAT(arguments_of(bottlenecks[0]), HasSubstr("--model llama3.2-1b "));
  EXPECT_THAT(arguments_of(bottlenecks[0]), HasSubstr("--batch-size 4 "));
  EXPECT_FALSE(fs::exists(work() / "results"));
  EXPECT_THAT(veil("suite llama3-dp --dry-run").out, HasSubstr("9 experiments, about "));
}

// What interpreters and launchers are called is replaced by `veil` and its command; the words behind are the seeds'.
TEST_F(ProgramModeSuite, EveryCommandLineOfTheSeedsIsTaken) {
  fs::create_directory(work() / "data");
  write("data/text.txt", std::string(3000, 'a'));
  struct Line {
    std::string words;
    std::string shorter;  // what makes it small enough for a test; a suite is only listed
  };
  const std::string tiny = " --device cpu";
  const std::vector<Line> lines = {
      // 000
      {"suite llama3-dp", " --dry-run"},
      {"profile --mode ghost_fsdp --seq-length 2048 --batch-size 2 --num-iter 3 --warmup-iter 1 --output "
       "results/test_result.json "
       "--model-name meta-llama/Llama-3.1-8B-Instruct --token hf_OfTheTest",
       " --layers 1 --help"},
      {"profile --mode ghost_fsdp --batch-size 2 --num-iter 3 --warmup-iter 1 --output results/test_result.json "
       "--token hf_OfTheTest",
       " --model llama-tiny --seq-length 16" + tiny},
      {"report --input-dir results --output-dir results/visualizations", ""},
      // 001
      {"suite bottlenecks --seq-lengths 512 1024 2048 --batch-size 4 --cpu", " --dry-run"},
      {"suite bottlenecks --seq-lengths 1024 2048 4096 8192 16384 --batch-size 4 --use-flash --nproc_per_node=2",
       " --dry-run" + tiny},
      {"verify --use-fsdp --verbose --enable-profiling", " --help"},
      // 002
      {"suite zero --nproc_per_node=2", " --dry-run" + tiny},
      {"suite zero --data_folder=data --batch_sizes 2 4 8 16 --grad_accum_steps 1 2 4 --num_steps=50 "
       "--nproc_per_node=2 "
       "--output_dir=comparison_results",
       " --dry-run" + tiny},
      {"train --batch_size=4 --num_steps=50", " --help"},
      {"train --batch_size=4 --gradient_accumulation_steps=2 --num_steps=100 --learning_rate=1e-5 --max_length=2048 "
       "--output_dir=results/zero2 --use_profiler",
       " --help"},
      // 003
      {"profile --data_parallel ddp --batch_size 8192", " --preset tiny --iterations 1 --help"},
      {"profile --data_parallel fsdp --batch_size 8192 --cpu_offload", " --preset tiny --help"},
      {"profile --data_parallel fsdp --batch_size 32 --forward_prefetch --backward_prefetch BACKWARD_POST",
       " --preset tiny --iterations 1" + tiny},
  };
  for (const Line& line : lines) {
    const Answer answer = veil(line.words + line.shorter);
    EXPECT_EQ(answer.code, kExitDone) << line.words << "\n" << answer.err;
    EXPECT_THAT(answer.out + answer.err, ::testing::Not(HasSubstr("hf_OfTheTest"))) << line.words;
  }
  const Json record = read(work() / "results" / "test_result.json");
  EXPECT_EQ(record["mode"].get<std::string>(), "ghost_fsdp");
  EXPECT_THAT(record.dump(), ::testing::Not(HasSubstr("hf_OfTheTest")));
  EXPECT_TRUE(fs::exists(work() / "results" / "visualizations" / "summary.txt"));
}

TEST_F(ProgramModeSuite, ATokenIsNowhereInASweepsFolder) {
  const Answer answer = veil(
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 16 --batch-size 1 --iterations 1 --warmup "
      "0 "
      "--token hf_OfTheTest --output-dir swept");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out + answer.err, ::testing::Not(HasSubstr("hf_OfTheTest")));
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(work() / "swept")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_THAT(text(entry.path()), ::testing::Not(HasSubstr("hf_OfTheTest"))) << entry.path();
  }
  EXPECT_GT(files, 3);
}

TEST_F(ProgramModeSuite, AHubNameThatWasNotFetchedIsMeasuredByItsShapeAndSaidSo) {
  const Json plan = plan_of("suite llama3-dp --model-name meta-llama/Llama-3.1-8B-Instruct --modes auto --seq 8");
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_THAT(arguments_of(plan[0]), HasSubstr("meta-llama/Llama-3.1-8B-Instruct"));
  const Answer unknown = veil("suite llama3-dp --model-name meta-llama/Llama-9-1B --dry-run");
  EXPECT_EQ(unknown.code, kExitUsage);
  EXPECT_THAT(unknown.err, HasSubstr("veil fetch"));
}

TEST_F(ProgramModeSuite, APresetOfOnesOwnIsATomlFileAndAWrongKeyNamesTheNearest) {
  write("presets/llama3-dp/mine.toml", "model = \"llama-tiny\"\nmode = [\"auto\", \"flash\"]\nseq-length = [8, 16]\n");
  EXPECT_EQ(plan_of("suite llama3-dp --preset mine").size(), 4u);
  EXPECT_EQ(plan_of("suite llama3-dp --preset presets/llama3-dp/mine.toml").size(), 4u);
  EXPECT_EQ(plan_of("suite llama3-dp --preset mine --mode no_dp").size(), 2u);  // the command line wins
  write("wrong.toml", "model = \"llama-tiny\"\nseq-lenght = [8]\n");
  write("decided.toml", "strategy = \"ddp\"\n");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"llama3-dp --preset wrong.toml", "unknown key 'seq-lenght': did you mean seq-length?"},
      {"llama3-dp --preset nowhere.toml", "no such file"},
      {"llama3-dp --preset tinny", "did you mean tiny?"},
      {"linear --preset decided.toml", "decide it themselves"},
      {"llama3-dp --mode flash,flash --device cpu --preset tiny", "given twice"},
      {"llama3-dp --mode flesh", "did you mean flash?"},
      {"llama3-dp --model linear-stack", "language model"},
      {"llama3-dp --preset tiny --seq-length 100000 --device cpu", "positions for 1 to"},
      {"bottlenecks --use-flash --mode ghost", "give one of them"},
      {"bottlenecks --cpu --device gpu", "pass one of them"},
      {"llama3-dp --repeat 0", "--repeat 0"},
      {"llama3-dp --resume nowhere", "no such folder"}};
  for (const auto& [words, says] : cases) {
    const Answer answer = veil("suite " + words);
    EXPECT_EQ(answer.code, kExitUsage) << words;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(says)) << words;
    EXPECT_FALSE(fs::exists(work() / "results")) << words;
  }
}

TEST_F(ProgramModeSuite, AMeasurementThatTakesTooLongIsARecordAndTheSweepGoesOn) {
  const Answer answer = veil(
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 8,512 --iterations 3000 "
      "--warmup 0 --timeout 0.2");
  EXPECT_EQ(answer.code, kExitFailed);
  for (const char* const length : {"8", "512"}) {
    const Json record = read(only_run(work() / "results") / (std::string("no_dp_seq") + length + "_result.json"));
    EXPECT_EQ(record["outcome"].get<std::string>(), "error");
    EXPECT_THAT(record["message"].get<std::string>(), HasSubstr("ended after 0.2 s"));
  }
}

TEST_F(ProgramModeSuite, OutOfMemoryIsARecordWithRemediesAndNoFailure) {
  const Answer answer =
      veil("suite llama3-dp --preset tiny --device cpu --mode no_dp,flash_fsdp --seq-length 4096 --batch-size 4000000");
  EXPECT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  EXPECT_THAT(answer.out, HasSubstr("did not fit; try --batch-size 2000000"));
  const Json record = read(only_run(work() / "results") / "flash_fsdp_seq4096_result.json");
  EXPECT_EQ(record["outcome"].get<std::string>(), "oom");
}

TEST_F(ProgramModeSuite, RepeatsAreMergedAndResumeAloneTakesTheOptionsItWasBegunWith) {
  const std::string words =
      "suite llama3-dp --preset tiny --device cpu --mode no_dp,flash --seq-length 8 --iterations 2 --repeat 2";
  ASSERT_EQ(veil(words).code, kExitDone);
  const fs::path run = only_run(work() / "results");
  EXPECT_EQ(read(run / "flash_seq8_result.json")["times_ms"].size(), 4u);
  EXPECT_EQ(read(run / "repeats" / "flash_seq8_r2_result.json")["times_ms"].size(), 2u);
  fs::remove(run / "repeats" / "flash_seq8_r2_result.json");
  const Answer again = veil("suite llama3-dp --resume --json");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_EQ(Json::parse(again.out).size(), 2u);
  EXPECT_TRUE(fs::exists(run / "repeats" / "flash_seq8_r2_result.json"));
  EXPECT_EQ(veil("suite bottlenecks --resume '" + run.string() + "'").code, kExitUsage);
}

TEST_F(ProgramModeSuite, TheBottleneckSuiteNamesThePhaseThatIsSlowedDownOnPurpose) {
  // Tiles of one row make norms slow and nothing else.
  const Answer answer =
      veil("suite bottlenecks --preset tiny --device cpu --mode flash --tile-size 1 --seq-length 16,32,64");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  EXPECT_THAT(answer.out, ::testing::ContainsRegex("In flash [0-9]+% of a step at T = 64 goes to norms"));
  EXPECT_THAT(answer.out, HasSubstr("--tile-size"));
  EXPECT_TRUE(fs::exists(only_run(work() / "results") / "scaling.csv"));
}

TEST_F(ProgramModeSuite, PhasesAndExposedWaitsSumToTheStep) {
  for (const char* const mode : {"no_dp", "ghost", "flash", "bookkeeping", "materialize"}) {
    const Json record =
        record_of(std::string("--model llama-tiny --device cpu --seq-length 256 --warmup 2 --iterations 4 --profile "
                              "phases,norms --mode ") +
                  mode);
    double sum = 0;
    for (const auto& [phase, entry] : record["phases"].items()) sum += entry["ms"].get<double>();
    for (const auto& [lane, entry] : record["communication"].items()) sum += entry["exposed_ms"].get<double>();
    const double step = record["avg_time_ms"].get<double>();
    EXPECT_NEAR(sum, step, 0.02 * step) << mode;
    const bool norms = record["phases"].contains("norms") || record["phases"].contains("kept_norms");
    EXPECT_EQ(norms, std::string(mode) != "no_dp") << mode;
  }
}

// A record without what a clock or the operating system's mood decides.
nlohmann::ordered_json timeless(nlohmann::ordered_json value, const std::string& run) {
  using Json = nlohmann::ordered_json;
  if (value.is_object()) {
    Json kept = Json::object();
    for (const auto& [key, below] : value.items()) {
      const bool clock = key.ends_with("_ms") || key.ends_with("ms") || key.ends_with("_seconds") ||
                         key.ends_with("_per_second") || key.find("per_second_a_rank") != std::string::npos ||
                         key.find("rss") != std::string::npos || key == "outside_allocator_bytes" ||
                         key == "timestamp" || key == "memory_mean_bytes" || key == "traces";
      if (!clock) kept[key] = timeless(below, run);
    }
    return kept;
  }
  if (value.is_array()) {
    Json kept = Json::array();
    for (const Json& below : value) kept.push_back(timeless(below, run));
    return kept;
  }
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    for (size_t at = text.find(run); at != std::string::npos; at = text.find(run)) text.replace(at, run.size(), "RUN");
    return text;
  }
  return value;
}

TEST_F(ProgramModeSuite, KilledTwentyTimesASweepEndsWithTheRecordsOfAnUndisturbedOne) {
  const std::string words =
      "suite llama3-dp --preset tiny --device cpu --mode no_dp,flash_fsdp,ghost --seq-length 8,16 --iterations 1 "
      "--warmup 0";
  ASSERT_EQ(veil(words + " --output-dir alone").code, kExitDone);
  const fs::path alone = only_run(work() / "alone");
  std::mt19937 random(20261115);
  int killed = 0;
  const fs::path run = work() / "disturbed";
  fs::create_directory(run);
  const auto records = [](const fs::path& folder) {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with("_result.json")) found.insert(name);
    }
    return found;
  };
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(work().c_str()) != 0) _exit(1);
      const std::string line = "exec '" VEIL_PROGRAM "' " + words + " --resume '" + run.string() + "' > /dev/null 2>&1";
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 900));
    killed += kill(child, i % 4 == 3 ? SIGINT : SIGKILL) == 0;
    int status = 0;
    waitpid(child, &status, 0);
    for (const std::string& name : records(run)) {
      const Json record = Json::parse(text(run / name), nullptr, false);
      EXPECT_FALSE(record.is_discarded()) << name << " is half a file after kill " << i;
    }
    // It lost records that were finished, or all of it: begin again somewhere in the middle.
    if (records(run).size() == 6) fs::remove(run / *records(run).begin());
  }
  EXPECT_EQ(killed, 20);
  ASSERT_EQ(veil(words + " --resume '" + run.string() + "'").code, kExitDone);
  ASSERT_EQ(records(run), records(alone));
  for (const std::string& name : records(run)) {
    const Json disturbed = timeless(read(run / name), run.string()),
               undisturbed = timeless(read(alone / name), fs::relative(alone, work()).string());
    EXPECT_EQ(disturbed, undisturbed) << name << " " << Json::diff(disturbed, undisturbed).dump();
  }
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.ends_with(".tmp") || name.ends_with(".running.json")) << name;
  }
}

}  // namespace
}  // namespace veil
