// veil suite llama3-dp and bottlenecks, presets and sweeps, as a person runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/test_paths.h"
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

// The tree that scripts which read such results expect, file by file.
TEST_F(ProgramModeSuite, TheTinyLlamaSuiteLeavesTheSeedsTreeAndItsKeys) {
  const Answer answer = veil("suite llama3-dp --preset tiny --device cpu --seq-length 16,32,64");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const fs::path run = only_run(work() / "results");
  EXPECT_THAT(run.filename().string(), ::testing::MatchesRegex("run_[0-9]{8}_[0-9]{6}"));
  for (const char* const mode : {"no_dp", "ghost_fsdp", "flash_fsdp", "auto"}) {
    for (const int length : {16, 32, 64}) {
      const Json record =
          read(run / (std::string(mode) + "_seq" + std::to_string(length) + "_result.json"));
      EXPECT_EQ(record["mode"].get<std::string>(), mode);
      EXPECT_EQ(record["seq_length"].get<int>(), length);
      EXPECT_EQ(record["batch_size"].get<int>(), 2);
      EXPECT_EQ(record["times_ms"].size(), 3u);
      for (const char* const key :
           {"total_batch_size", "num_gpus", "peak_memory_mb", "peak_memory_gb", "avg_time_ms"})
        EXPECT_TRUE(record.contains(key)) << key;
      for (const char* const key :
           {"model_name", "vocab_size", "learning_rate", "sigma", "max_grad_norm"})
        EXPECT_TRUE(record["config"].contains(key)) << key;
      EXPECT_DOUBLE_EQ(record["config"]["learning_rate"].get<double>(), 1e-5);
      EXPECT_EQ(record["task"].get<std::string>(), "sequence-classification");
      EXPECT_EQ(record["config"]["labels"].get<int>(), 3);
    }
  }
  const bool drawn = std::system("gnuplot --version > /dev/null 2>&1") == 0;
  for (const char* const name :
       {"memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis"})
    EXPECT_TRUE(fs::exists(run / "visualizations" / (std::string(name) + (drawn ? ".png" : ".gp"))))
        << name;
  EXPECT_TRUE(fs::exists(run / "visualizations" / "summary.txt"));
  EXPECT_TRUE(fs::exists(run / "index.html"));
  EXPECT_THAT(answer.out, HasSubstr("time over no_dp"));
  EXPECT_THAT(answer.out, HasSubstr(" (auto).\n")) << "auto leads the headline";
  EXPECT_THAT(answer.out, HasSubstr("One rank shards nothing"));
  for (const auto& entry : fs::directory_iterator(run))
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("running")));
}

TEST_F(ProgramModeSuite, WithoutAGpuEverySuiteOffersTheTinyPresetInOneLine) {
  if (gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  for (const char* const suite :
       {"llama3-dp", "bottlenecks", "checkpointing", "dit-dp", "foresight", "linear", "zero"}) {
    const Answer answer = veil(std::string("suite ") + suite);
    EXPECT_EQ(answer.code, kExitMissing) << suite;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(std::string("veil suite ") + suite + " --preset tiny"));
    EXPECT_EQ(answer.out, "") << suite;
    for (const char* const folder : {"results", "comparison_results", "memory_profiling_results"})
      EXPECT_FALSE(fs::exists(work() / folder)) << suite;
  }
}

TEST_F(ProgramModeSuite, DefaultsAreTheSeedsAndADryRunTellsTheTime) {
  const Json plan = plan_of("suite llama3-dp");
  ASSERT_EQ(plan.size(), 12u) << "the seed's nine and auto's three";
  std::set<std::string> names;
  for (const Json& experiment : plan) {
    names.insert(experiment["experiment"].get<std::string>());
    const std::string words = arguments_of(experiment);
    for (const char* const piece :
         {"--model llama3.1-8b ", "--task sequence-classification ", "--labels 3 ",
          "--batch-size 2 ", "--warmup 1 ", "--iterations 3 ", "--sigma 1 ", "--clip-norm 1 ",
          "--learning-rate 1e-05 "})
      EXPECT_THAT(words, HasSubstr(piece));
    EXPECT_GT(experiment["estimated_seconds"].get<double>(), 0);
  }
  for (const char* const mode : {"no_dp", "ghost_fsdp", "flash_fsdp", "auto"}) {
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
  EXPECT_THAT(veil("suite llama3-dp --dry-run").out, HasSubstr("12 experiments, about "));
}

TEST_F(ProgramModeSuite, ATokenIsNowhereInASweepsFolder) {
  const Answer answer = veil(
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 16 --batch-size 1 "
      "--iterations 1 --warmup "
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
  const Json plan =
      plan_of("suite llama3-dp --model-name meta-llama/Llama-3.1-8B-Instruct --modes auto --seq 8");
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_THAT(arguments_of(plan[0]), HasSubstr("meta-llama/Llama-3.1-8B-Instruct"));
  const Answer unknown = veil("suite llama3-dp --model-name meta-llama/Llama-9-1B --dry-run");
  EXPECT_EQ(unknown.code, kExitUsage);
  EXPECT_THAT(unknown.err, HasSubstr("veil fetch"));
}

TEST_F(ProgramModeSuite, APresetOfOnesOwnIsATomlFileAndAWrongKeyNamesTheNearest) {
  write("presets/llama3-dp/mine.toml",
        "model = \"llama-tiny\"\nmode = [\"auto\", \"flash\"]\nseq-length = [8, 16]\n");
  EXPECT_EQ(plan_of("suite llama3-dp --preset mine").size(), 4u);
  EXPECT_EQ(plan_of("suite llama3-dp --preset presets/llama3-dp/mine.toml").size(), 4u);
  // the command line wins
  EXPECT_EQ(plan_of("suite llama3-dp --preset mine --mode no_dp").size(), 2u);
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
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 8,512 --iterations "
      "3000 "
      "--warmup 0 --timeout 0.2");
  EXPECT_EQ(answer.code, kExitFailed);
  for (const char* const length : {"8", "512"}) {
    const Json record =
        read(only_run(work() / "results") / (std::string("no_dp_seq") + length + "_result.json"));
    EXPECT_EQ(record["outcome"].get<std::string>(), "error");
    EXPECT_THAT(record["message"].get<std::string>(), HasSubstr("ended after 0.2 s"));
  }
}

TEST_F(ProgramModeSuite, OutOfMemoryIsARecordWithRemediesAndNoFailure) {
  const Answer answer = veil(
      "suite llama3-dp --preset tiny --device cpu --mode no_dp,flash_fsdp --seq-length 4096 "
      "--batch-size 4000000");
  EXPECT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  EXPECT_THAT(answer.out,
              ::testing::AllOf(HasSubstr("Instead of flash_fsdp, T=4096, try: --batch-size "),
                               HasSubstr(", fits, ")));
  const Json record = read(only_run(work() / "results") / "flash_fsdp_seq4096_result.json");
  EXPECT_EQ(record["outcome"].get<std::string>(), "oom");
}

TEST_F(ProgramModeSuite, RepeatsAreMergedAndResumeAloneTakesTheOptionsItWasBegunWith) {
  const std::string words =
      "suite llama3-dp --preset tiny --device cpu --mode no_dp,flash --seq-length 8 --iterations 2 "
      "--repeat 2";
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
  const Answer answer = veil(
      "suite bottlenecks --preset tiny --device cpu --mode flash --tile-size 1 --seq-length "
      "16,32,64");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  EXPECT_THAT(answer.out, HasSubstr("At T = 64, the largest part of a step is norms in flash ("));
  EXPECT_THAT(answer.out, HasSubstr("Advice on time, flash: "));
  EXPECT_TRUE(fs::exists(only_run(work() / "results") / "scaling.csv"));
}

// Phases on the compute lane and its waits for the others, together, against the step that the
// clock around it saw.
void expect_sum_is_the_step(const nlohmann::ordered_json& record, const std::string& what) {
  double sum = 0;
  for (const auto& [phase, entry] : record["phases"].items()) {
    if (phase != "layers") sum += entry["ms"].get<double>();  // those are the same times again
  }
  for (const auto& [lane, entry] : record["communication"].items())
    sum += entry["exposed_ms"].get<double>();
  const double step = record["avg_time_ms"].get<double>();
  EXPECT_GT(step, 0) << what;
  EXPECT_NEAR(sum, step, 0.02 * step) << what;
}

TEST_F(ProgramModeSuite, PhasesAndExposedWaitsSumToTheStep) {
  for (const char* const mode : {"no_dp", "ghost", "flash", "bookkeeping", "materialize"}) {
    const Json record = record_of(
        std::string(
            "--model llama-tiny --device cpu --seq-length 256 --warmup 2 --iterations 4 --profile "
            "phases,norms --mode ") +
        mode);
    expect_sum_is_the_step(record, mode);
    const bool norms =
        record["phases"].contains("norms") || record["phases"].contains("kept_norms");
    EXPECT_EQ(norms, std::string(mode) != "no_dp") << mode;
  }
}

TEST_F(ProgramModeSuite, PhasesAndExposedWaitsOfTwoRanksSumToTheStep) {
  if (!built_with_mpi()) GTEST_SKIP() << "built without MPI";
  for (const char* const words :
       {"--mode flash --strategy zero3", "--mode bookkeeping --strategy zero3",
        "--mode ghost --strategy zero2 --accumulation 2"}) {
    const Json record = record_of(std::string("--model llama-tiny --device cpu --seq-length 128 "
                                              "--warmup 1 --iterations 3 --ranks 2 --profile "
                                              "phases,norms ") +
                                  words);
    EXPECT_EQ(record["world"].get<int>(), 2);
    EXPECT_GT(record["communication"].size(), 0u) << words;
    expect_sum_is_the_step(record, words);
  }
}

TEST_F(ProgramModeSuite, InEveryRecordOfTheBottleneckSuitePhasesSumToTheStep) {
  const Answer answer = veil(
      "suite bottlenecks --preset tiny --device cpu --mode flash,bookkeeping,no_dp --seq-length "
      "64,256 --iterations 2");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const fs::path run = only_run(work() / "results");
  for (const char* const mode : {"flash", "bookkeeping", "no_dp"}) {
    for (const char* const length : {"64", "256"}) {
      const std::string name = std::string(mode) + "_seq" + length;
      expect_sum_is_the_step(read(run / (name + "_result.json")), name);
    }
  }
}

// A record without what a clock or the operating system's mood decides.
nlohmann::ordered_json timeless(nlohmann::ordered_json value, const std::string& run) {
  using Json = nlohmann::ordered_json;
  if (value.is_object()) {
    Json kept = Json::object();
    for (const auto& [key, below] : value.items()) {
      const bool clock = key.ends_with("_ms") || key.ends_with("ms") || key.ends_with("_seconds") ||
                         key.ends_with("_per_second") ||
                         key.find("per_second_a_rank") != std::string::npos ||
                         key.find("rss") != std::string::npos || key == "outside_allocator_bytes" ||
                         key == "timestamp" || key == "memory_mean_bytes" || key == "traces" ||
                         key == "cpu_during";
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
    for (size_t at = text.find(run); at != std::string::npos; at = text.find(run))
      text.replace(at, run.size(), "RUN");
    return text;
  }
  return value;
}

// Looks at every JSON file of a folder again and again while something else writes there.
class JsonWatch {
 public:
  explicit JsonWatch(fs::path folder) : folder_(std::move(folder)), thread_([this] { look(); }) {}
  ~JsonWatch() {
    stop_ = true;
    thread_.join();
  }
  JsonWatch(const JsonWatch&) = delete;
  JsonWatch& operator=(const JsonWatch&) = delete;
  int looks() const { return looks_; }
  std::string broken() const {
    const std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  void look() {
    while (!stop_) {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
        if (entry.path().extension() != ".json") continue;
        std::ifstream file(entry.path());
        if (!file) continue;  // gone again
        std::ostringstream all;
        all << file.rdbuf();
        const bool whole =
            !nlohmann::json::parse(all.str(), nullptr, /*allow_exceptions=*/false).is_discarded();
        const std::lock_guard lock(mutex_);
        if (!whole) broken_ += entry.path().filename().string() + " ";
        ++looks_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  fs::path folder_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> looks_ = 0;
  mutable std::mutex mutex_;
  std::string broken_;
  std::thread thread_;  // the last one: it uses the others
};

TEST_F(ProgramModeSuite, KilledTwentyTimesASweepEndsWithTheRecordsOfAnUndisturbedOne) {
  const std::string words =
      "suite llama3-dp --preset tiny --device cpu --mode no_dp,flash_fsdp,ghost --seq-length 8,16 "
      "--iterations 1 "
      "--warmup 0";
  ASSERT_EQ(veil(words + " --output-dir alone").code, kExitDone);
  const fs::path alone = only_run(work() / "alone");
  std::mt19937 random(20261115);
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
  const std::set<std::string> all = records(alone);
  ASSERT_EQ(all.size(), 6u);
  JsonWatch watch(run);
  int killed = 0;
  for (int round = 0; killed < 20; ++round) {
    ASSERT_LT(round, 60) << "the sweep ends before it can be killed";
    // One that lost records which were finished, or all but a few.
    if (records(run) == all) {
      for (const std::string& name : all) {
        if (random() % 2) fs::remove(run / name);
      }
    }
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(work().c_str()) != 0) _exit(1);
      const std::string line = "exec '" + veil_program() + "' " + words + " --resume '" +
                               run.string() + "' > /dev/null 2>&1";
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    int status = 0;
    // it had ended by itself: nothing was killed
    if (waitpid(child, &status, WNOHANG) == child) continue;
    ASSERT_EQ(kill(child, killed % 4 == 3 ? SIGINT : SIGKILL), 0);
    waitpid(child, &status, 0);
    ++killed;
    // Whatever is there is a whole record of its experiment, and equal to the undisturbed one
    // already.
    for (const std::string& name : records(run)) {
      ASSERT_TRUE(all.count(name)) << name;
      EXPECT_EQ(timeless(read(run / name), run.string()),
                timeless(read(alone / name), fs::relative(alone, work()).string()))
          << name << " after kill " << killed;
    }
  }
  ASSERT_EQ(veil(words + " --resume '" + run.string() + "'").code, kExitDone);
  EXPECT_EQ(watch.broken(), "") << "half a file was seen";
  EXPECT_GT(watch.looks(), 100);
  ASSERT_EQ(records(run), all);
  for (const std::string& name : all) {
    const Json disturbed = timeless(read(run / name), run.string()),
               undisturbed = timeless(read(alone / name), fs::relative(alone, work()).string());
    EXPECT_EQ(disturbed, undisturbed) << name << " " << Json::diff(disturbed, undisturbed).dump();
    EXPECT_GT(disturbed.size(), 30u) << "hardly a field was compared";
  }
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.ends_with(".tmp") || name.ends_with(".running.json")) << name;
  }
}

// An experiment that an earlier call has finished took this one no time: nothing follows from it
// for the others.
TEST_F(ProgramModeSuite, TimeLeftIsOfWhatWasMeasuredInThisCall) {
  const std::string words =
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 8,16,24 --iterations 1 "
      "--warmup 0 ";
  const Answer first = veil(words + "--output-dir swept");
  ASSERT_EQ(first.code, kExitDone) << first.err;
  EXPECT_THAT(first.err, HasSubstr("[2/3] no_dp, T=16, "))
      << "one was measured, so the others can be told";
  const fs::path run = only_run(work() / "swept");
  fs::remove(run / "no_dp_seq24_result.json");
  const Answer again = veil(words + "--resume '" + run.string() + "'");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.err, HasSubstr("[3/3] no_dp, T=24\n"));
  EXPECT_THAT(again.err, ::testing::Not(HasSubstr("left")));
}

TEST_F(ProgramModeSuite, AFolderWithoutASweepCannotBeGoneOnWith) {
  fs::create_directory(work() / "empty");
  for (const char* const suite : {"llama3-dp", "bottlenecks", "dit-dp", "zero", "linear"}) {
    const Answer answer = veil(std::string("suite ") + suite + " --resume empty");
    EXPECT_EQ(answer.code, kExitUsage) << suite;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr("--resume empty: it holds no sweep.json")) << suite;
    EXPECT_EQ(answer.out, "") << suite;
  }
  EXPECT_TRUE(fs::is_empty(work() / "empty"));
}

TEST_F(ProgramModeSuite, ASuiteBeginsWithWhatDefinesItInAFewLines) {
  const Answer said = veil(
      "suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 8 --iterations 1 "
      "--warmup 0 --sigma 2");
  ASSERT_EQ(said.code, kExitDone) << said.err;
  const std::string head = said.out.substr(0, said.out.find("\n\n"));
  for (const char* const row :
       {"model", "mode", "seq-length", "batch-size", "iterations", "device", "sigma"})
    EXPECT_THAT(head, ::testing::ContainsRegex(std::string("(^|\n)  ") + row + " +[^ ]")) << row;
  for (const char* const row : {"image-size", "label-drop", "cpu-offload", "momentum"})
    EXPECT_THAT(head, ::testing::Not(HasSubstr(row)));
  EXPECT_LE(std::count(head.begin(), head.end(), '\n'), 14);
  // All of them are in the record.
  const Json record = read(only_run(work() / "results") / "no_dp_seq8_result.json");
  EXPECT_GT(record["config"].size(), 50u);
}

TEST_F(ProgramModeSuite, OnACpuTheRecordSaysWhatOtherWorkTook) {
  ASSERT_EQ(veil("suite llama3-dp --preset tiny --device cpu --mode no_dp --seq-length 8 "
                 "--iterations 1 --warmup 0")
                .code,
            kExitDone);
  const Json record = read(only_run(work() / "results") / "no_dp_seq8_result.json");
  ASSERT_TRUE(record.contains("cpu_during"));
  EXPECT_GT(record["cpu_during"]["own_percent"].get<double>(), 0);
  EXPECT_GE(record["cpu_during"]["others_percent"].get<double>(), 0);
  EXPECT_LE(record["cpu_during"]["others_percent"].get<double>(), 100);
}

}  // namespace
}  // namespace veil
