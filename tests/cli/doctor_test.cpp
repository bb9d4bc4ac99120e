#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "cli/command.h"
#include "tensor/device.h"

namespace veil::doctor_test {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer doctor_says(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "doctor");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_veil(arguments);
  std::fflush(stdout);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Doctor, ItShowsTheBuildAndTheMachine) {
  const Answer answer = doctor_says({});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  for (const char* row : {"LibTorch", "CPU", "GPU", "NCCL", "MPI", "cuDNN", "images", "gnuplot"})
    EXPECT_THAT(answer.out, HasSubstr(row));
  EXPECT_THAT(answer.out, HasSubstr(build_info().torch_version));
}

TEST(Doctor, JsonToStdoutIsAllThatStandsThere) {
  const Answer answer = doctor_says({"--json"});
  const nlohmann::json record = nlohmann::json::parse(answer.out);
  EXPECT_EQ(record["build"]["version"], build_info().version);
  EXPECT_EQ(record["build"]["backends"]["mpi"], build_info().mpi);
  EXPECT_EQ(record["machine"]["gpus"].size(), static_cast<size_t>(gpu_count()));
  EXPECT_GT(record["machine"]["cpu"]["cores"].get<int>(), 0);
  EXPECT_GT(record["machine"]["cpu"]["memory_bytes"].get<int64_t>(), 0);
}

TEST(Doctor, JsonGoesToAFileBesideTheTable) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "veil_doctor_test.json").string();
  const Answer answer = doctor_says({"--json", path});
  EXPECT_THAT(answer.out, HasSubstr("LibTorch"));
  std::ifstream file(path);
  EXPECT_TRUE(nlohmann::json::parse(file).contains("missing"));
  std::filesystem::remove(path);
}

TEST(Doctor, WhatIsRequiredAndAbsentIsOneLineAndExitCodeThree) {
  if (gpu_count() > 0) GTEST_SKIP() << "a GPU is here";
  const Answer answer = doctor_says({"--require", "gpu"});
  EXPECT_EQ(answer.code, kExitMissing);
  EXPECT_THAT(answer.err, ::testing::StartsWith("veil: --require gpu: "));
  EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1);
}

TEST(Doctor, AnUnknownNeedIsWrongUsage) {
  const Answer answer = doctor_says({"--require", "gpus,ncl"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("did you mean nccl?"));
}

TEST(Doctor, NoRankIsWrongUsage) {
  EXPECT_EQ(doctor_says({"--ranks", "0"}).code, kExitUsage);
}

}  // namespace
}  // namespace veil::doctor_test
