// Every command line of five published sets of experiment scripts, run for real: interpreters,
// launchers and scripts are called `veil` and its command here, the words behind are the scripts'.
//   FSDP Llama 3 memory and time profiling: clipping modes by sequence length
//   the guide to profiling FSDP flash clipping with long sequences
//   FSDP training performance comparison: ZeRO 2 or 3 on Qwen 1.5
//   the FSDP tutorial of ODSC West 2024: a stack of linear layers
//   DiT-L memory profiling with flash attention
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

struct Line {
  std::string command;  // instead of the interpreter, its launcher and the script
  std::string words;    // the script's, word for word; RUN: the folder of the run before
  std::string added;    // by the test, so that it ends in seconds on a CPU
  std::vector<std::pair<std::string, std::string>> smaller =
      {};  // a size in the script's words that takes a CPU minutes, and the one that is run instead
  std::string environment = "";
};

class ProgramScriptLines : public ProgramTest {
 protected:
  // A model of one narrow layer under the name that the scripts' lines have, so that the lines need
  // not change; and under `narrow` for those that name none.
  ProgramScriptLines() {
    for (const char* const name : {"meta-llama/Llama-3.1-8B-Instruct", "narrow"}) {
      fs::create_directories(work() / name);
      std::ofstream(work() / name / "config.json")
          << R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                 "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5,
                 "rope_theta": 10000.0, "tie_word_embeddings": false})";
    }
    fs::create_directory(work() / "data");
    for (int i = 0; i < 40; ++i)
      std::ofstream(work() / "data" / ("text" + std::to_string(i) + ".txt"))
          << std::string(1200, static_cast<char>('a' + i % 26));
  }

  void run(const Line& line) {
    std::string words = line.command + " " + line.words;
    const auto put = [&](const std::string& from, const std::string& to) {
      ASSERT_NE(words.find(from), std::string::npos) << from;
      for (size_t at = words.find(from); at != std::string::npos;
           at = words.find(from, at + to.size()))
        words.replace(at, from.size(), to);
    };
    for (const auto& [from, to] : line.smaller) put(from, to);
    if (words.find("RUN") != std::string::npos) put("RUN", newest(work() / "results"));
    if (words.find("--nproc_per_node=2") != std::string::npos && !built_with_mpi())
      put("--nproc_per_node=2", "");
    const Answer answer = veil(words + " " + line.added, line.environment);
    EXPECT_EQ(answer.code, kExitDone) << words << "\n" << answer.err << answer.out;
    EXPECT_THAT(answer.out + answer.err, ::testing::Not(HasSubstr("hf_OfTheTest"))) << words;
  }
  static std::string newest(const fs::path& parent) {
    std::string found;
    for (const auto& entry : fs::directory_iterator(parent)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("run_")) found = std::max(found, name);
    }
    return found;
  }
  // The records of the newest run, by experiment.
  std::map<std::string, Json> records(const std::string& parent) const {
    std::map<std::string, Json> found;
    for (const auto& entry : fs::directory_iterator(work() / parent / newest(work() / parent))) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with("_result.json"))
        found[name.substr(0, name.size() - 12)] = read(entry.path());
    }
    return found;
  }
  static int ranks() { return built_with_mpi() ? 2 : 1; }
};

TEST_F(ProgramScriptLines, Llama3Profiling) {
  run({"suite llama3-dp", "",
       "--preset tiny --device cpu --seq-length 8,16,32 --iterations 1 --warmup 0"});
  EXPECT_EQ(records("results").size(), 12u);
  run({"report", "--input-dir results/RUN --output-dir results/RUN/visualizations", ""});
  EXPECT_TRUE(fs::exists(work() / "results" / newest(work() / "results") / "visualizations" /
                         "summary.txt"));
  run({"profile",
       "--mode ghost_fsdp --seq-length 2048 --batch-size 2 --num-iter 3 --warmup-iter 1 --output "
       "results/test_result.json "
       "--model-name meta-llama/Llama-3.1-8B-Instruct --token hf_OfTheTest",
       "--device cpu"});
  const Json record = read(work() / "results" / "test_result.json");
  EXPECT_EQ(record["mode"].get<std::string>(), "ghost_fsdp");
  EXPECT_EQ(record["seq_length"].get<int>(), 2048);
  EXPECT_EQ(record["batch_size"].get<int>(), 2);
  EXPECT_EQ(record["times_ms"].size(), 3u);
  EXPECT_EQ(record["config"]["warmup"].get<int>(), 1);
  EXPECT_EQ(record["config"]["model_name"].get<std::string>(), "meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_THAT(record.dump(), ::testing::Not(HasSubstr("hf_OfTheTest")));
}

TEST_F(ProgramScriptLines, FlashClippingGuide) {
  run({"verify", "", "--device cpu --model llama-tiny --mode flash,bookkeeping"});
  run({"verify", "--nproc_per_node=2 --use-fsdp --verbose --enable-profiling",
       "--device cpu --model llama-tiny --mode flash --rng philox --output verified.json"});
  const Json verified = read(work() / "verified.json");
  EXPECT_EQ(verified["config"]["profile"].get<bool>(), true);
  EXPECT_EQ(verified["config"]["verbose"].get<bool>(), true);
  for (const Json& row : verified["rows"])
    EXPECT_EQ(row["strategy"].get<std::string>(), "zero3") << row.dump();
  // The guide's script names no model: it makes its own.
  run({"suite bottlenecks", "--seq-lengths 512 1024 2048 --batch-size 4 --cpu",
       "--model narrow --iterations 1 --warmup 0"});
  const auto short_ones = records("results");
  ASSERT_EQ(short_ones.size(), 6u);
  EXPECT_EQ(short_ones.at("bookkeeping_seq2048")["batch_size"].get<int>(), 4);
  EXPECT_EQ(short_ones.at("bookkeeping_seq2048")["config"]["device"].get<std::string>(), "cpu");
}

TEST_F(ProgramScriptLines, FlashClippingGuideOnTwoRanks) {
  run({"suite bottlenecks",
       "--nproc_per_node=2 --seq-lengths 1024 2048 4096 8192 16384 --batch-size 4 --use-flash",
       "--device cpu --model narrow --iterations 1 --warmup 0",
       {},
       "VEIL_PROFILE=phases"});  // the guide's OPACUS_PROFILE_FSDP=1
  const auto found = records("results");
  ASSERT_EQ(found.size(), 5u);
  for (const char* const length : {"1024", "2048", "4096", "8192", "16384"}) {
    const Json& record = found.at(std::string("flash_seq") + length);
    EXPECT_EQ(record["world"].get<int>(), ranks());
    EXPECT_EQ(record["batch_size"].get<int>(), 4);
    EXPECT_TRUE(record.contains("phases"));
  }
}

TEST_F(ProgramScriptLines, ZeroComparison) {
  // launch_comparison.sh 2 and compare_strategies.py
  run({"suite zero", "--nproc_per_node=2",
       "--device cpu --model narrow --seq-length 8 --iterations 1 --warmup 0 --batch-sizes 2 "
       "--accumulations 1"});
  EXPECT_EQ(records("comparison_results").size(), 2u);
  fs::remove_all(work() / "comparison_results");
  // training/train_zero2.py and training/train_zero3.py
  for (const char* const strategy : {"zero2", "zero3"}) {
    run({std::string("train --strategy ") + strategy,
         "--nproc_per_node=2 --batch_size=4 --num_steps=50",
         std::string(
             "--device cpu --model narrow --from-scratch --data data --held-out 0 --max-length 8 "
             "--output-dir ") +
             strategy});
    const fs::path trained = work() / strategy / newest(work() / strategy);
    EXPECT_THAT(text(trained / "metrics.jsonl"), HasSubstr("\"step\":50,"));
  }
  run({"train --strategy zero2",
       "--nproc_per_node=2 --batch_size=4 --gradient_accumulation_steps=2 --num_steps=100 "
       "--learning_rate=1e-5 "
       "--max_length=2048 "
       "--output_dir=results/zero2 --use_profiler",
       "--device cpu --model narrow --from-scratch --data data --held-out 0",
       {{"--num_steps=100", "--num_steps=10"}}});
  const fs::path longer = work() / "results" / "zero2" / newest(work() / "results" / "zero2");
  std::istringstream metrics(text(longer / "metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const Json entry = Json::parse(line);
    if (!entry.contains("loss")) continue;
    EXPECT_LE(entry["learning_rate"].get<double>(), 1e-5);
    ++steps;
  }
  EXPECT_EQ(steps, 10);
}

TEST_F(ProgramScriptLines, ZeroComparisonsGrid) {
  run({"suite zero",
       "--data_folder=data --batch_sizes 2 4 8 16 --grad_accum_steps 1 2 4 --num_steps=50 "
       "--nproc_per_node=2 "
       "--output_dir=comparison_results",
       "--device cpu --model narrow --seq-length 4 --warmup 0 --strategies zero3 --profile none",
       {{"--num_steps=50", "--num_steps=5"}}});
  const auto found = records("comparison_results");
  ASSERT_EQ(found.size(), 12u);
  const Json& largest = found.at("zero3_bs16_ga4");
  EXPECT_EQ(largest["times_ms"].size(), 5u);
  EXPECT_EQ(largest["batch_size"].get<int>(), 16);
  EXPECT_EQ(largest["config"]["accumulation"].get<int>(), 4);
  EXPECT_EQ(largest["data"]["source"].get<std::string>(), "data");
}

TEST_F(ProgramScriptLines, FsdpTutorial) {
  const std::string added =
      "--device cpu --input-size 16 --layers 2 --min-num-params 100 --iterations 1 --warmup 1 "
      "--output record.json";
  const std::vector<std::pair<std::string, Json>> lines = {
      {"--data_parallel ddp --batch_size 8192", {{"strategy", "ddp"}}},
      {"--data_parallel fsdp --batch_size 8192",
       {{"strategy", "zero3"}, {"cpu-offload", false}, {"backward-prefetch", "pre"}}},
      {"--data_parallel fsdp --batch_size 8192 --cpu_offload",
       {{"strategy", "zero3"}, {"cpu-offload", true}}},
      {"--data_parallel fsdp --batch_size 8192 --forward_prefetch --backward_prefetch "
       "BACKWARD_POST",
       {{"strategy", "zero3"}, {"forward-prefetch", 1}, {"backward-prefetch", "post"}}},
      // Its table of options
      {"--data_parallel fsdp --auto_wrap_policy size_based --min_num_params 100 --batch_size 8192 "
       "--backward_prefetch "
       "NONE",
       {{"wrap", "size"}, {"min-num-params", 100}, {"backward-prefetch", "none"}}},
  };
  for (const auto& [words, settings] : lines) {
    const bool named = words.find("min_num_params") != std::string::npos;
    run({"profile", words,
         named ? "--device cpu --input-size 16 --layers 2 --iterations 1 --warmup 1 --output "
                 "record.json"
               : added});
    const Json record = read(work() / "record.json");
    EXPECT_EQ(record["batch_size"].get<int>(), 8192) << words;
    for (const auto& [name, value] : settings.items())
      EXPECT_EQ(record["config"][name].dump(), value.dump()) << words << " " << name;
  }
}

TEST_F(ProgramScriptLines, DitProfiling) {
  run({"suite dit-dp", "", "--preset tiny --device cpu --batch-size 2 --iterations 1 --warmup 0"});
  const auto found = records("memory_profiling_results");
  for (const char* const name :
       {"vanilla", "ghost", "flash_clip", "bookkeeping", "flash_clip_bookkeeping"}) {
    EXPECT_TRUE(found.count(name)) << name;
    // single_experiment.py, whose model is a DiT-L: 24 layers of 1024 take a CPU minutes per step.
    run({"profile",
         std::string("--experiment ") + name +
             " --output results/one.json --image-size 256 --patch-size 8 --hidden-dim 1024 "
             "--num-layers 24 --num-heads "
             "16 "
             "--batch-size 2 --num-iter 3 --warmup-iter 0",
         "--device cpu",
         {{"--hidden-dim 1024", "--hidden-dim 32"},
          {"--num-layers 24", "--num-layers 2"},
          {"--image-size 256", "--image-size 64"}}});
    const Json record = read(work() / "results" / "one.json");
    EXPECT_EQ(record["times_ms"].size(), 3u);
    EXPECT_EQ(record["experiment"].get<std::string>(), name);
    const Json& config = record["config"];
    EXPECT_EQ(config["model"].get<std::string>(), "dit-l/8");
    EXPECT_EQ(config["image-size"].get<int>(), 64);
    EXPECT_EQ(config["patch-size"].get<int>(), 8);
    EXPECT_EQ(config["hidden-dim"].get<int>(), 32);
    EXPECT_EQ(config["layers"].get<int>(), 2);
    EXPECT_EQ(config["heads"].get<int>(), 16);
    EXPECT_EQ(config["batch-size"].get<int>(), 2);
    EXPECT_EQ(config["warmup"].get<int>(), 0);
  }
}

}  // namespace
}  // namespace veil
