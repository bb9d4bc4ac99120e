// veil plan, as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/program.h"
#include "tensor/device.h"

namespace veil {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProgramPlan : public ProgramTest {
 protected:
  std::string plan(const std::string& words) const {
    const Answer answer = veil("plan " + words);
    EXPECT_EQ(answer.code, kExitDone) << words << "\n" << answer.err;
    EXPECT_EQ(answer.err, "");
    return answer.out;
  }
  static double gib_after_model(const Json& plan) {
    int64_t sum = 0;
    for (const auto& [category, bytes] : plan["after_model"]["device"].items())
      sum += bytes.get<int64_t>();
    return to_gib(sum);
  }
};

TEST_F(ProgramPlan, AScheduleOfEverySettingIsPrinted) {
  EXPECT_THAT(plan("--schedule --preset tiny --world 4 --strategy zero3"), HasSubstr("gather"));
  EXPECT_THAT(plan("--schedule --preset tiny --world 4 --strategy ddp"), Not(HasSubstr("gather")));
  EXPECT_THAT(plan("--schedule --preset tiny --world 4 --strategy ddp"), HasSubstr("reduce"));
  EXPECT_THAT(plan("--schedule --preset tiny --world 4 --strategy zero2"), HasSubstr("gather"));
  EXPECT_THAT(plan("--schedule --preset tiny --checkpointing"), HasSubstr("recompute"));
  EXPECT_THAT(plan("--schedule --preset tiny --cpu-offload --world 2"), HasSubstr("copy"));
  EXPECT_THAT(plan("--schedule --preset tiny --strategy zero3 --world 2 --accumulation 4 "
                   "--accumulate whole"),
              HasSubstr("tail"));
  EXPECT_THAT(plan("--schedule --preset tiny --buffers --world 2"), HasSubstr("whole"));
}

TEST_F(ProgramPlan, MemoryIsPrintedByCategoryAndRow) {
  for (const char* words :
       {"--strategy ddp", "--strategy zero2 --optimizer adamw", "--strategy zero3 --compute bf16",
        "--strategy zero3 --wrap size --cpu-offload",
        "--strategy zero3 --wrap none --device cpu"}) {
    const std::string out = plan(std::string("--memory --table --preset tiny --world 3 ") + words);
    for (const char* word :
         {"parameters", "gradients", "activations", "forward", "backward", "update", "peak"}) {
      EXPECT_THAT(out, HasSubstr(word)) << words;
    }
  }
  EXPECT_THAT(plan("--memory --table --preset tiny --world 2 --cpu-offload --device gpu"),
              HasSubstr("pinned memory"));
  EXPECT_THAT(plan("--memory --preset tiny --device cpu"), HasSubstr("host memory"));
}

TEST_F(ProgramPlan, MemoryEndsWithAVerdictAndTheTableIsShownOnRequestOnly) {
  const std::string small = plan("--memory --preset tiny --memory-budget 1"),
                    large = plan("--memory --world 8 --memory-budget 2");
  EXPECT_THAT(small, HasSubstr("verdict  fits in the 1 GiB of --memory-budget"));
  EXPECT_THAT(small, HasSubstr("to spare"));
  EXPECT_THAT(small, Not(HasSubstr("backward")));
  EXPECT_THAT(small, Not(HasSubstr("change ")));
  EXPECT_THAT(large, HasSubstr("verdict  does not fit in the 2 GiB of --memory-budget"));
  EXPECT_THAT(large, HasSubstr("change   --"));
  EXPECT_THAT(plan("--memory --preset tiny --device cpu"),
              HasSubstr("verdict  fits in this machine's"));
  if (gpu_count() == 0) {
    const std::string rented = plan("--memory --model llama3.1-8b --seq-length 8192 --world 8");
    EXPECT_THAT(rented, HasSubstr("verdict  fits on "));
    EXPECT_THAT(rented, HasSubstr("H200"));
  }
}

TEST_F(ProgramPlan, ClipTakesTheFunctionThatOtherCommandsTakeThere) {
  const std::string model = "--model llama-tiny --seq-length 16 --device cpu ";
  const std::string costs = plan(model + "--clip");
  EXPECT_THAT(costs, HasSubstr("fastest"));
  EXPECT_THAT(costs, Not(HasSubstr("that fits"))) << "no budget was given";
  EXPECT_THAT(plan(model + "--clip --memory-budget 4"), HasSubstr("fastest that fits"));
  EXPECT_THAT(plan(model + "--clip per-layer --pass-plan per-layer"), HasSubstr("per-layer"));
  EXPECT_EQ(plan(model + "--clip per-layer --json"),
            plan(model + "--clip --clip-function per-layer --json"));
  const Answer wrong = veil("plan " + model + "--clip per-layr");
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean per-layer?"));
}

// What the FSDP tutorial of ODSC West 2024 prints for eight ranks: 8 GiB of parameters and 1 GiB of
// data under ddp; an eighth of the former when sharded.
TEST_F(ProgramPlan, TheTutorialsWorkloadHasItsBytesAfterModelCreation) {
  const Json ddp = Json::parse(plan("--json --world 8 --strategy ddp"));
  EXPECT_NEAR(gib_after_model(ddp), 9.00048828125, 1e-6);
  const Json zero3 = Json::parse(plan("--json --world 8"));
  EXPECT_NEAR(gib_after_model(zero3), 2.0001, 1e-3);
  EXPECT_LE(to_gib(zero3["peak_bytes"]["device"]), 11.02);
  ASSERT_FALSE(zero3["rows"].empty());
  for (const char* key : {"part", "row", "lane", "op", "on", "after", "creates", "frees",
                          "bytes_after", "bytes_peak"}) {
    EXPECT_TRUE(zero3["rows"][0].contains(key)) << key;
  }
}

TEST_F(ProgramPlan, ASimulatedWorldIsPlannedLikeARealOne) {
  EXPECT_EQ(plan("--json --preset tiny --simulate-world 4"),
            plan("--json --preset tiny --world 4"));
}

TEST_F(ProgramPlan, TimeIsPredictedWithItsSpreadAndWhatBoundsIt) {
  const std::string words = "--model llama3.1-8b --batch-size 2 --mode auto --time ";
  const std::string text = plan(words + "--gpu h200 --world 8 --link 400 --steps 1000 --price 3");
  EXPECT_THAT(text, HasSubstr("per step"));
  EXPECT_THAT(text, HasSubstr("bound by compute"));
  EXPECT_THAT(text, HasSubstr("at 400 GB/s"));
  EXPECT_THAT(text, HasSubstr("1000 steps"));
  EXPECT_THAT(text, HasSubstr("USD"));
  const Json fast = Json::parse(plan(words + "--json --gpu h200"))["time"],
             slow = Json::parse(plan(words + "--json --gpu a100"))["time"];
  EXPECT_LT(fast["ms"].get<double>(), slow["ms"].get<double>());
  EXPECT_LT(fast["low_ms"].get<double>(), fast["ms"].get<double>());
  EXPECT_THAT(fast["machine"].get<std::string>(), HasSubstr("H200"));
  EXPECT_THAT(slow["source"].get<std::string>(), HasSubstr("published figures"));
  const Answer unpaid = veil("plan --price 3");
  EXPECT_EQ(unpaid.code, kExitUsage);
  EXPECT_THAT(unpaid.err, HasSubstr("--steps"));
}

// The best way comes as a command that `veil train` accepts, and the ways are in order.
TEST_F(ProgramPlan, TheWaysToRunOnSeveralGpusAreRanked) {
  const std::string text = plan(
      "--model llama3.2-1b --seq-length 256 --total-batch-size 64 --mode auto --gpus 4 --gpu h100 "
      "--link 400 --steps 10 --price 2");
  const size_t at = text.find("best     veil ");
  ASSERT_NE(at, std::string::npos) << text;
  std::string best = text.substr(at + 14, text.find('\n', at) - at - 14);
  EXPECT_THAT(best, HasSubstr("--total-batch-size 64"));
  EXPECT_THAT(best, HasSubstr("--ranks 4"));
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"EPSILON", "3"},
                                 {"DELTA", "1e-6"},
                                 {"DATA", work().string() + "/missing"}})
    best.replace(best.find(from), from.size(), to);
  const Answer answer = veil(best + " --tokenizer bytes --from-scratch --device cpu");
  EXPECT_THAT(answer.err,
              HasSubstr("/missing: no such folder"));  // the data, and no option of the command
  EXPECT_EQ(veil("plan --gpus 4 --world 2").code, kExitUsage);
  EXPECT_EQ(veil("plan --model llama3.2-1b --gpus 3 --total-batch-size 64").code, kExitUsage);
}

}  // namespace
}  // namespace veil
