// veil profile, as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "cli/program.h"
#include "comm/communicator.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProgramProfile : public ProgramTest {
 protected:
  // One line, the exit code, nothing on standard output and nothing made.
  void expect_refused(const std::string& words, const std::string& says, int code = kExitUsage) {
    SCOPED_TRACE(words);
    const auto before = entries();
    const Answer answer = veil(words);
    EXPECT_EQ(answer.code, code);
    EXPECT_THAT(answer.err, StartsWith("veil: "));
    EXPECT_THAT(answer.err, HasSubstr(says));
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_EQ(answer.out, "");
    EXPECT_EQ(entries(), before) << "something was left behind";
  }

  int64_t entries() const { return std::distance(fs::recursive_directory_iterator(work()), {}); }
};

TEST_F(ProgramProfile, WrongInputIsOneLineAndLeavesNothing) {
  expect_refused("profile --bach-size 3", "did you mean --batch-size?");
  expect_refused("profile --strategy zero4", "allowed are ddp");
  expect_refused("profile --backward_prefetch SOON", "allowed are pre");
  expect_refused("profile --batch-size many", "whole number");
  expect_refused("profile --ranks 0", "--ranks 0");
  expect_refused("profile --simulate-world 0", "--simulate-world 0");
  expect_refused("profile --min-num-params -1", "--min-num-params -1");
  expect_refused("profile --preset tiny --simulate-world 4 --simulate-rank 4", "ranks 0 to 3");
  expect_refused("profile --preset tiny --simulate-rank 1", "--simulate-world");
  expect_refused("profile --preset tiny --simulate-world 4 --ranks 2", "one process");
  expect_refused("profile --preset tiny --device cpu --ranks 2 --total-batch-size 7",
                 "multiples of 2");
  expect_refused("profile --preset tiny --device cpu --simulate-world 4 --total-batch-size 6",
                 "multiples of 512");  // micro-batches of 128
  expect_refused("profile --preset tiny --device cpu --accumulation 3 --total-batch-size 256",
                 "leave one of the three out");
  expect_refused("profile --preset tiny --profile none,layers", "none");
  expect_refused("profile --preset tiny --device cpu --graph on", "no GPU");
  expect_refused("profile --preset tiny --data .", "the linear stack reads no text");
  expect_refused("profile --model qwen2-tiny --data nowhere", "--data nowhere: no such");
  expect_refused("profile --model qwen2-tiny --tokenizer byte", "pass --data PATH too");
  expect_refused("plan --world 0", "--world 0");
  expect_refused("plan --world 2 --total-batch-size 7", "multiples of 2\n");
  expect_refused("plan --accumulation 3 --total-batch-size 8", "multiples of 3");
  expect_refused("suite linar", "did you mean linear?");
  expect_refused("suite linear --strategy ddp", "set-ups");
  expect_refused("suite linear --preset tiny --device cpu --ranks 2 --total-batch-size 7",
                 "multiples of 2");
  expect_refused("suite linear --preset tiny --device cpu --resume nowhere", "no such folder");
}

TEST_F(ProgramProfile, AFolderThatCannotBeWrittenIsToldBeforeTheWork) {
  std::ofstream(work() / "file") << "x";
  fs::create_directory(work() / "folder");
  for (const char* ranks : {"", " --ranks 2"}) {
    const std::string tiny = std::string("profile --preset tiny --device cpu") + ranks;
    expect_refused(tiny + " --output-dir file/below", "not a folder");
    expect_refused(tiny + " --output file/below.json", "not a folder");
    expect_refused(tiny + " --output folder", "it is a folder");
    expect_refused(tiny + " --output new/record.json --output-dir file/below", "not a folder");
  }
  expect_refused("suite linear --preset tiny --device cpu --output-dir file/below", "file/below");
}

TEST_F(ProgramProfile, MoreGpuRanksThanGpusAreRefused) {
  if (gpu_count() == 0) {
    expect_refused("profile --preset tiny --device gpu --ranks 2", "no GPU", kExitMissing);
    expect_refused("profile --preset tiny --device gpu", "no GPU", kExitMissing);
    expect_refused("suite linear --preset tiny --device gpu", "no GPU", kExitMissing);
    return;
  }
  expect_refused("profile --preset tiny --device gpu --ranks " + std::to_string(gpu_count() + 1),
                 "--share-gpu");
}

TEST_F(ProgramProfile, TheTutorialsCommandLinesRun) {
  const std::string start = "--model linear-stack --preset tiny --device cpu --batch_size 64 ";
  const Json ddp = record_of(start + "--data_parallel ddp");
  EXPECT_EQ(ddp["config"]["strategy"], "ddp");
  EXPECT_EQ(ddp["config"]["batch-size"], 64);
  EXPECT_EQ(record_of(start + "--data_parallel fsdp")["config"]["strategy"], "zero3");
  EXPECT_EQ(record_of(start + "--data_parallel fsdp --cpu_offload")["config"]["cpu-offload"], true);
  const Json fast = record_of(
      start + "--data_parallel fsdp --forward_prefetch --backward_prefetch BACKWARD_POST");
  EXPECT_EQ(fast["config"]["forward-prefetch"], 1);
  EXPECT_EQ(fast["config"]["backward-prefetch"], "post");
  const Json sized = record_of(start + "--auto_wrap_policy size_based --min_num_params 1000");
  EXPECT_EQ(sized["config"]["wrap"], "size");
  EXPECT_EQ(sized["config"]["min-num-params"], 1000);
  EXPECT_THAT(sized["command"], StartsWith("veil profile --model linear-stack --preset tiny"));
}

TEST_F(ProgramProfile, EveryRankTellsItsMemoryAtFourStages) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const Answer answer = veil("profile --preset tiny --device cpu --ranks 2 --batch-size 64");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  std::map<int, std::vector<std::string>> stages;
  for (const Json& line : answer.objects()) {
    stages[line["rank"]].push_back(line["stage"]);
    EXPECT_EQ(line["log_key"], "memory");
    for (const char* key :
         {"cuda_memory_allocated_GB", "cuda_max_memory_allocated_GB", "cuda_memory_reserved_GB",
          "cuda_max_memory_reserved_GB", "cpu_memory_rss_GB"}) {
      ASSERT_TRUE(line.contains(key)) << key;
      EXPECT_GT(line[key].get<double>(), 0) << key;
    }
    EXPECT_EQ(line["cuda_memory_allocated_GB"].get<double>() * (1 << 30),
              line["memory_allocated_bytes"]);
    int64_t booked = 0;
    for (const auto& [category, bytes] : line["bytes_by_category"]["host"].items())
      booked += bytes.get<int64_t>();
    EXPECT_EQ(booked, line["memory_allocated_bytes"]) << line.dump();
  }
  ASSERT_EQ(stages.size(), 2u);
  for (const auto& [rank, names] : stages) {
    EXPECT_THAT(names,
                ElementsAre("after data creation", "after model creation", "after warmup", "end"))
        << rank;
  }
}

TEST_F(ProgramProfile, TheRecordHasTheLlama3ScriptsKeysAndAddsUp) {
  const Json record =
      record_of("--preset tiny --device cpu --batch-size 64 --simulate-world 2 --iterations 4");
  for (const char* key : {"schema",           "outcome",     "command",        "build",
                          "machine",          "mode",        "seq_length",     "batch_size",
                          "total_batch_size", "num_gpus",    "peak_memory_mb", "peak_memory_gb",
                          "avg_time_ms",      "std_time_ms", "config",         "breakdown",
                          "stages",           "phases",      "communication",  "memory_rows",
                          "precision",        "rng",         "device",         "simulated",
                          "losses",           "graph"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  EXPECT_EQ(record["outcome"], "ok");
  EXPECT_EQ(record["batch_size"], 64);
  EXPECT_EQ(record["total_batch_size"], 128);
  EXPECT_EQ(record["num_gpus"], 0);
  ASSERT_EQ(record["times_ms"].size(), 4u);
  const auto times = record["times_ms"].get<std::vector<double>>();
  EXPECT_NEAR(record["avg_time_ms"].get<double>(),
              std::accumulate(times.begin(), times.end(), 0.0) / 4, 1e-9);
  const int64_t peak = record["peak_memory_bytes"];
  EXPECT_EQ(peak, record["estimated_peak_bytes"]);
  EXPECT_DOUBLE_EQ(record["peak_memory_mb"].get<double>(), static_cast<double>(peak) / 1e6);
  EXPECT_DOUBLE_EQ(record["peak_memory_gb"].get<double>(), static_cast<double>(peak) / 1e9);
  int64_t booked = 0;
  for (const auto& [category, bytes] : record["breakdown"].items()) booked += bytes.get<int64_t>();
  EXPECT_EQ(booked, peak);
  const double step = record["avg_time_ms"];
  EXPECT_NEAR(record["phase_sum_ms"].get<double>(), step, 0.02 * step);
  EXPECT_LT(record["losses"].back().get<double>(), record["losses"].front().get<double>());
}

TEST_F(ProgramProfile, TheEstimatedPeakIsTheMeasuredOneForEverySetUp) {
  for (const char* words :
       {"--strategy ddp", "--strategy zero2 --optimizer adamw", "--strategy zero3 --cpu-offload",
        "--strategy zero3 --forward-prefetch --backward-prefetch post --checkpointing",
        "--strategy zero3 --wrap size"}) {
    const Json record = record_of(
        std::string("--preset tiny --device cpu --simulate-world 3 --iterations 1 ") + words);
    EXPECT_GT(record["peak_memory_bytes"].get<int64_t>(), 0) << words;
    EXPECT_EQ(record["peak_memory_bytes"], record["estimated_peak_bytes"]) << words;
    EXPECT_EQ(record["world"], 3);
    EXPECT_EQ(record["simulated"], true);
    EXPECT_GT(record["modelled_step_ms"].get<double>(), 0);
  }
}

TEST_F(ProgramProfile, TwoRanksHaveTheLossesOfOneWithBothBatches) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const Json one = record_of("--preset tiny --device cpu --batch-size 128 --learning-rate 1");
  for (const char* strategy : {"ddp", "zero3"}) {
    const Json two = record_of(
        std::string(
            "--preset tiny --device cpu --batch-size 64 --learning-rate 1 --ranks 2 --strategy ") +
        strategy);
    ASSERT_EQ(two["losses"].size(), one["losses"].size());
    for (size_t i = 0; i < one["losses"].size(); ++i) {
      const double expected = one["losses"][i];
      EXPECT_NEAR(two["losses"][i].get<double>(), expected, 1e-6 * expected)
          << strategy << " step " << i;
    }
    EXPECT_EQ(two["ranks"].size(), 2u);
    EXPECT_EQ(two["total_batch_size"], 128);
  }
}

TEST_F(ProgramProfile, TheVariableAsksForRowsOfLayersAndTheOptionGoesBeforeIt) {
  const std::string tiny = "--preset tiny --device cpu --iterations 1";
  const Json record = record_of(tiny, "VEIL_PROFILE=layers");
  EXPECT_GT(record["phases"]["layers"]["forward layers.3"].get<double>(), 0)
      << record["phases"].dump(1);
  EXPECT_GT(record["phases"]["layers"]["backward layers.0"].get<double>(), 0);
  EXPECT_FALSE(
      record_of(tiny + " --profile phases", "VEIL_PROFILE=layers")["phases"].contains("layers"));
  EXPECT_EQ(veil("profile " + tiny, "VEIL_PROFILE=everything").code, kExitUsage);
}

TEST_F(ProgramProfile, TracesAreJsonInAFolderNamedAfterTheConfiguration) {
  const Json record =
      record_of("--preset tiny --device cpu --batch-size 32 --iterations 2 --output-dir logs");
  ASSERT_EQ(record["traces"].size(), 1u);
  const fs::path path = work() / record["traces"][0].get<std::string>();
  EXPECT_EQ(path.parent_path(), work() / "logs" / "zero3_w1_bs32_in256_l4_bwd-pre_wrap-module");
  EXPECT_THAT(path.string(), ::testing::EndsWith(".pt.trace.json"));  // what TensorBoard looks for
  int forwards = 0;
  const Json trace = read(path);
  for (const Json& event : trace["traceEvents"])
    forwards += event.value("name", "") == "forward layers.2";
  EXPECT_EQ(forwards, 2);
  const Json quiet =
      record_of("--preset tiny --device cpu --iterations 1 --profile none --output-dir none");
  EXPECT_TRUE(quiet["traces"].empty());
  EXPECT_FALSE(fs::exists(work() / "none"));
}

TEST_F(ProgramProfile, KernelsAreTracedByKinetoAndListed) {
  const Answer answer =
      veil("profile --preset tiny --device cpu --profile kernels --output record.json");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("operator or kernel"));
  const Json record = read(work() / "record.json");
  ASSERT_EQ(record["traces"].size(), 1u);
  const Json trace = read(work() / record["traces"][0].get<std::string>());
  int products = 0;
  for (const Json& event : trace["traceEvents"])
    products += event.value("name", "").starts_with("aten::");
  EXPECT_GT(products, 0);
  EXPECT_FALSE(record["kernels"].empty());
}

TEST_F(ProgramProfile, ALanguageModelReadsTextEpochAfterEpoch) {
  fs::create_directory(work() / "data");
  // bytes: 10 samples of 64 tokens
  std::ofstream(work() / "data" / "text.txt") << std::string(700, 'a');
  const std::string words =
      "--model qwen2-tiny --device cpu --seq-length 64 --batch-size 2 --accumulation 2";
  const Json record = record_of(words + " --data_folder=data --num_steps=6 --warmup 1");
  EXPECT_EQ(record["data"]["source"], "data");
  EXPECT_EQ(record["data"]["documents"], 1);
  EXPECT_EQ(record["data"]["tokens"], 700);
  EXPECT_EQ(record["data"]["samples"], 10);
  EXPECT_EQ(record["data"]["steps_an_epoch"], 2);  // six steps are three epochs
  ASSERT_EQ(record["times_ms"].size(), 6u);
  EXPECT_GT(record["data"]["loader_busy_ms"].get<double>(), 0);
  EXPECT_GE(record["data"]["load_ms"].get<double>(),
            record["data"]["loader_waited_ms"].get<double>());
  EXPECT_EQ(record["phases"]["data"]["ms"], record["data"]["load_ms"]);
  const double step = record["avg_time_ms"];
  EXPECT_NEAR(record["phase_sum_ms"].get<double>(), step, 0.05 * step + 0.5);
  EXPECT_LT(record["losses"].back().get<double>(), record["losses"].front().get<double>());
  EXPECT_EQ(record["peak_memory_bytes"], record["estimated_peak_bytes"]);
  const auto mean = record["memory_mean_bytes"].get<int64_t>(),
             peak = record["peak_memory_bytes"].get<int64_t>();
  EXPECT_GT(mean, record["stages"].front()["memory_allocated_bytes"].get<int64_t>());
  EXPECT_LT(mean, peak);
  EXPECT_EQ(record["ranks"][0]["memory_mean_bytes"], mean);
  EXPECT_GE(record["end_to_end_seconds"].get<double>() * 1e3, 6 * step);
  EXPECT_FALSE(record_of(words).contains("data")) << "synthetic tokens have no source";

  const Answer more =
      veil("profile --model qwen2-tiny --device cpu --seq-length 64 --batch-size 11 --data data");
  EXPECT_EQ(more.code, kExitUsage);
  EXPECT_EQ(more.complaints(), 1) << more.err;
  EXPECT_THAT(more.err, HasSubstr("10 samples, fewer than one batch of 11"));
}

TEST_F(ProgramProfile, ASimulatedWorldsThroughputIsThatOfItsModelledStep) {
  const std::string words =
      "--model qwen2-tiny --device cpu --seq-length 32 --simulate-world 4 --link ";
  const Json slow = record_of(words + "0.001"), fast = record_of(words + "1000");
  for (const Json& record : {slow, fast}) {
    const double tokens = 2.0 * 32 * 4, seconds = record["modelled_step_ms"].get<double>() / 1e3;
    EXPECT_NEAR(record["tokens_per_second"].get<double>(), tokens / seconds,
                1e-6 * tokens / seconds);
    EXPECT_LE(record["communication"]["gather"]["modelled_exposed_ms"].get<double>(),
              record["communication"]["gather"]["modelled_ms"].get<double>() * 1.001);
  }
  EXPECT_GT(slow["communication"]["gather"]["modelled_exposed_ms"].get<double>(),
            100 * fast["communication"]["gather"]["modelled_exposed_ms"].get<double>());
}

// Weights that are all alike would make every gradient 0, and the step faster than a real one.
TEST_F(ProgramProfile, ASimulatedWorldsClassifierTellsItsLabelsApart) {
  for (const char* words : {"llama-tiny --simulate-world 2", "llama-tiny --simulate-world 8",
                            "llama-tiny --simulate-world 16", "gemma3-tiny --simulate-world 8",
                            "gpt2-tiny --simulate-world 8 --simulate-rank 2"}) {
    const Json record = record_of(
        std::string("--task sequence-classification --device cpu --seq-length 32 --model ") +
        words);
    for (const Json& loss : record["losses"])
      EXPECT_GT(std::abs(loss.get<double>() - std::log(3.0)), 1e-6) << words;
  }
}

TEST_F(ProgramProfile, WhatTheHostCannotHoldIsAnOutcomeWithRemedies) {
  // A layer takes 4 TiB. The limit is for the day when this fails: no test may use up its host.
  const Answer answer = veil(
      "profile --device cpu --input-size 1048576 --layers 64 --batch-size 2 --output record.json",
      "ulimit -v 1073741824 &&");
  EXPECT_EQ(answer.code, kExitFailed);
  EXPECT_THAT(answer.out, HasSubstr("out of memory"));
  const Json record = read(work() / "record.json");
  EXPECT_EQ(record["outcome"], "oom");
  EXPECT_FALSE(record["remedies"].empty());
}

}  // namespace
}  // namespace veil
