#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

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

// Secrets are planted wherever the report might look.
TEST(Doctor, AReportHoldsWhatABugNeedsAndNothingOfThePerson) {
  namespace fs = std::filesystem;
  const fs::path home = fs::path(::testing::TempDir()) / "veil_doctor_home_of_alice";
  fs::create_directories(home / "bin");
  for (const char* program : {"mpirun", "gnuplot"}) {
    std::ofstream(home / "bin" / program) << "#!/bin/sh\n";
    fs::permissions(home / "bin" / program, fs::perms::owner_all);
  }
  const std::map<std::string, std::string> planted = {
      {"HF_TOKEN", "hf_planted_1"},
      {"VEIL_PLANTED", "planted_2"},
      {"OMP_PLANTED", "planted_3"},
      {"SLURM_JOB_USER", "planted_4"},
      {"https_proxy", "http://bob:planted_5@proxy"},
      {"MY_PASSWORD", "planted_6"},
      {"LD_LIBRARY_PATH", (home / "lib").string()},
      {"HOME", home.string()},
      {"USER", "planted_7"},
      {"PATH", (home / "bin").string() + ":/usr/bin:/bin"}};
  std::map<std::string, std::optional<std::string>> before;
  for (const auto& [name, value] : planted) {
    const char* const was = std::getenv(name.c_str());
    before[name] = was ? std::optional<std::string>(was) : std::nullopt;
    setenv(name.c_str(), value.c_str(), 1);
  }
  const Answer answer = doctor_says({"--report"});
  const std::string file = (home / "report.json").string();
  const Answer to_file = doctor_says({"--report", file});
  const Answer again = doctor_says({"--report", file});
  const Answer both = doctor_says({"--report", "--json"});
  std::ofstream(home / "mine.json") << "{}";
  const Answer foreign = doctor_says({"--report", (home / "mine.json").string()});
  for (const auto& [name, value] : before) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const nlohmann::json report = nlohmann::json::parse(answer.out);
  EXPECT_EQ(report["build"]["version"], build_info().version);
  EXPECT_EQ(report["build"]["libtorch"], build_info().torch_version);
  EXPECT_FALSE(report["system"]["os"].get<std::string>().empty());
  EXPECT_THAT(report["system"]["kernel"].get<std::string>(), HasSubstr("Linux"));
  EXPECT_GT(report["machine"]["cpu"]["cores"].get<int>(), 0);
  EXPECT_EQ(report["machine"]["gpus"].size(), static_cast<size_t>(gpu_count()));
  EXPECT_TRUE(report["libraries"].contains("mpi"));
  EXPECT_EQ(report["programs"]["mpirun"], true);
  const auto names = report["environment_names"].get<std::vector<std::string>>();
  for (const char* name : {"HF_TOKEN", "VEIL_PLANTED", "OMP_PLANTED", "LD_LIBRARY_PATH"})
    EXPECT_THAT(names, ::testing::Contains(name));
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::ifstream read(file);
  std::ostringstream written;
  written << read.rdbuf();
  EXPECT_EQ(to_file.code, kExitDone) << to_file.err;
  EXPECT_EQ(again.code, kExitDone) << "its own file may be replaced: " << again.err;
  EXPECT_EQ(both.code, kExitUsage);
  EXPECT_EQ(foreign.code, kExitUsage) << "a file of somebody else";
  for (const std::string& text : {answer.out, written.str()}) {
    for (const std::string& word :
         {std::string("planted_"), std::string("alice"), std::string("bob"),
          std::string("MY_PASSWORD"), home.string(), '"' + std::string(host) + '"'})
      EXPECT_EQ(text.find(word), std::string::npos) << word << " in\n" << text;
    EXPECT_EQ(text.find(build_info().torch_folder), std::string::npos);
  }
  fs::remove_all(home);
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
