// veil verify as a person runs it.
#include <gmock/gmock.h>

#include "base/error.h"
#include "cli/program.h"
#include "comm/communicator.h"
#include "tensor/device.h"

namespace veil {
namespace {

using ::testing::HasSubstr;

class ProgramVerify : public ProgramTest {
 protected:
  Json verified(const std::string& words, int code = kExitDone) const {
    const Answer answer = veil("verify --device cpu --json " + words);
    EXPECT_EQ(answer.code, code) << words << "\n" << answer.out << answer.err;
    return answer.code == code ? Json::parse(answer.out) : Json::object();
  }
};

TEST_F(ProgramVerify, EveryModeAndStrategyOfATinyModelPasses) {
  const Json record = verified("--model qwen2-tiny-tied --dtype fp64 --seq-length 12");
  EXPECT_EQ(record["verdict"].get<std::string>(), "pass");
  EXPECT_EQ(record["rows"].size(), 7u * 3u);
  EXPECT_EQ(record["noise"].size(), 2u * 3u);
  for (const Json& row : record["rows"]) {
    EXPECT_EQ(row["tolerance"].get<double>(), 1e-10);
    EXPECT_LE(row["max_grad_diff"].get<double>(), 1e-10);
    if (row["mode"].get<std::string>() == "no_dp") continue;
    EXPECT_LE(row["max_norm_diff"].get<double>(), 1e-10);
    EXPECT_NEAR(row["sum_clipped_norms"].get<double>(),
                row["expected_sum_clipped_norms"].get<double>(), 1e-9);
    EXPECT_THAT(row["not_private"].get<std::vector<std::string>>(),
                ::testing::Contains("sum_clipped_norms"));
  }
}

TEST_F(ProgramVerify, OtherTypesClipFunctionsAndCheckpointingPassToo) {
  verified(
      "--model gpt2-tiny --seq-length 12 --mode bookkeeping,materialize --strategy zero3 "
      "--checkpointing full");
  verified(
      "--model llama-tiny --task sequence-classification --seq-length 12 --dtype bf16 --mode "
      "flash,auto --strategy "
      "ddp");
  verified(
      "--model linear-stack --clip per-layer --mode ghost,flash_fsdp --strategy zero2 "
      "--accumulation 3");
  verified(
      "--model llama-tiny --seq-length 12 --clip automatic --clip-norm 0.5 --rule flash "
      "--tile-size 5 --mode "
      "bookkeeping "
      "--strategy ddp --rng secure,philox --accumulation 1");
}

TEST_F(ProgramVerify, ADiffusionTransformerPassesInEveryModeWithPaddingAndOneMicroBatch) {
  const Json record = verified("--model dit-tiny --dtype fp64");
  EXPECT_EQ(record["rows"].size(), 7u * 3u);
  for (const Json& row : record["rows"]) EXPECT_LE(row["max_grad_diff"].get<double>(), 1e-10);
  verified(
      "--model dit-tiny --clip per-layer --mode flash,bookkeeping --strategy zero3 --accumulation "
      "1 --checkpointing "
      "full");
  verified("--model dit-tiny --dtype bf16 --mode ghost,materialize --strategy zero2 --layers 1");
}

// Nothing of a frozen parameter is clipped, and it has no noise.
TEST_F(ProgramVerify, FrozenParametersPassToo) {
  verified(
      "--model llama-tiny-tied --freeze model.embed_tokens.* --mode ghost,materialize --strategy "
      "ddp,zero3");
  verified("--model dit-tiny --train-only blocks.0.* --mode flash,bookkeeping --strategy zero2");
}

TEST_F(ProgramVerify, NormsAndPhasesAreShownOnRequestAndMarked) {
  const Answer answer = veil(
      "verify --device cpu --model llama-tiny --seq-length 8 --mode flash --strategy ddp --verbose "
      "--enable-profiling");
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  for (const char* text :
       {"norms, not private", "before clipping", "padding: does not count", "* not private",
        "milliseconds a step, by phase", "backward", "rows pass at fp32"})
    EXPECT_THAT(answer.out, HasSubstr(text));
}

TEST_F(ProgramVerify, TwoWorldsAreOneTableAndTheirNoiseHasTheSameBits) {
  if (!built_with_mpi()) GTEST_SKIP() << "ranks need MPI here";
  const Json record =
      verified("--model gpt2-tiny --seq-length 8 --mode ghost,materialize --ranks 1,2");
  ASSERT_EQ(record["rows"].size(), 2u * 3u * 2u);
  ASSERT_EQ(record["noise"].size(), 2u * 6u);
  for (const Json& row : record["noise"]) {
    if (row["batch"] != "varying") continue;
    EXPECT_EQ(row["digest"].get<std::string>(), record["noise"][0]["digest"].get<std::string>());
  }
  EXPECT_EQ(record["rows"].back()["world"].get<int>(), 2);
}

class GpuVerify : public ProgramTest {};

// Noise too, which is compared bit by bit.
TEST_F(GpuVerify, EveryRowPassesWithEveryGenerator) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (const char* const words : {"--dtype bf16", "--dtype fp32"}) {
    const Answer answer =
        veil(std::string("verify --device gpu --model llama-tiny-tied --seq-length 12 --mode "
                         "auto,materialize --rng secure,hardened,philox ") +
             words);
    EXPECT_EQ(answer.code, kExitDone) << words << "\n" << answer.out << answer.err;
  }
}

TEST_F(ProgramVerify, BadInputIsOneLineAndExitCodeTwo) {
  for (const char* words :
       {"--simulate-world 8", "--dtype fp16", "--model lama-tiny", "--mode gost", "--ranks 0",
        "--pass-plan per-layer", "--optimizer adamw", "--moments bf16", "--batch-size 0",
        "--freeze nobody"}) {
    const Answer answer = veil(std::string("verify ") + words);
    EXPECT_EQ(answer.code, kExitUsage) << words;
    EXPECT_EQ(answer.complaints(), 1) << words << "\n" << answer.err;
  }
  EXPECT_THAT(veil("verify --simulate-world 8").err, HasSubstr("no peers"));
}

}  // namespace
}  // namespace veil
