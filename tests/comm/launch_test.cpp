#include "comm/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"

namespace veil {
namespace {

// Sets exactly these of the launchers' variables for a scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& set) {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_STEP_ID",
                                           "SLURM_NTASKS_PER_NODE",
                                           "SLURM_JOB_ID",
                                           "SLURM_NODEID",
                                           "SLURM_NODELIST",
                                           "SLURM_STEP_NODELIST",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_TASKS_PER_NODE",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "PMIX_RANK",
                                           "PMI_RANK",
                                           "PMI_FD",
                                           "VEIL_LAUNCHER_SOCKET"};
  std::map<std::string, std::string> before_;
};

TEST(Launch, WhatMakesLibrariesComputeOtherwiseIsKnownAndNothingElse) {
  const auto with = [](const char* name) {
    setenv(name, "7", 1);
    const std::vector<std::string> found = rank_info_from_environment().arithmetic;
    unsetenv(name);
    return std::count(found.begin(), found.end(), std::string(name) + "=7");
  };
  for (const char* name :
       {"OPENBLAS_CORETYPE", "OPENBLAS_VERBOSE", "MKL_CBWR", "OMP_DYNAMIC", "DNNL_MAX_CPU_ISA",
        "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "KMP_AFFINITY", "GLIBC_TUNABLES",
        "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"})
    EXPECT_EQ(with(name), 1) << name;
  // Launchers set these anew in each launch.
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME", "HOME2"})
    EXPECT_EQ(with(name), 0) << name;
}

TEST(Launch, AProcessStartedAloneIsAWorldOfOne) {
  const Environment environment({});
  const RankInfo info = rank_info_from_environment();
  EXPECT_EQ(info.launcher, Launcher::none);
  EXPECT_EQ(info.world, 1);
  const World world(info);  // needs neither MPI nor a network
  EXPECT_EQ(world.info().rank, 0);
}

TEST(Launch, MpirunsVariablesAreRead) {
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "5"},
                                 {"OMPI_COMM_WORLD_SIZE", "8"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const RankInfo info = rank_info_from_environment();
  EXPECT_EQ(info.launcher, Launcher::mpirun);
  EXPECT_TRUE(info.by_mpi);
  EXPECT_EQ(std::tuple(info.rank, info.world, info.local_rank, info.local_world),
            std::tuple(5, 8, 1, 4));
}

TEST(Launch, TorchrunsVariablesAreReadAndItsAgentsStoreIsAskedForThePort) {
  const std::map<std::string, std::string> base = {{"RANK", "2"},
                                                   {"WORLD_SIZE", "4"},
                                                   {"LOCAL_RANK", "0"},
                                                   {"LOCAL_WORLD_SIZE", "2"},
                                                   {"MASTER_ADDR", "node7"},
                                                   {"MASTER_PORT", "1234"}};
  {
    const Environment environment(base);
    const RankInfo info = rank_info_from_environment();
    EXPECT_EQ(info.launcher, Launcher::torchrun);
    EXPECT_EQ(std::tuple(info.rank, info.world, info.local_rank, info.local_world),
              std::tuple(2, 4, 0, 2));
    EXPECT_EQ(info.master_address, "node7");
    EXPECT_EQ(info.master_port, 1234);
    EXPECT_FALSE(info.agent_store);
  }
  auto with_agent = base;
  with_agent.emplace("TORCHELASTIC_USE_AGENT_STORE", "True");
  with_agent.emplace("TORCHELASTIC_RESTART_COUNT", "2");
  const Environment environment(with_agent);
  const RankInfo info = rank_info_from_environment();
  EXPECT_TRUE(info.agent_store);
  EXPECT_EQ(info.master_port, 1234);
  EXPECT_EQ(info.attempt, 2);
}

TEST(Launch, SrunsVariablesAreReadInsideAStepOnly) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "1"}};
  {
    const Environment environment(variables);
    EXPECT_EQ(rank_info_from_environment().launcher, Launcher::none)
        << "a batch script is not a rank";
  }
  variables["SLURM_STEP_ID"] = "4294967290";
  {
    const Environment environment(variables);
    EXPECT_EQ(rank_info_from_environment().launcher, Launcher::none)
        << "an interactive allocation's shell is not a rank";
  }
  variables["SLURM_STEP_ID"] = "0";
  const Environment environment(variables);
  const RankInfo info = rank_info_from_environment();
  EXPECT_EQ(info.launcher, Launcher::srun);
  EXPECT_EQ(std::tuple(info.rank, info.world, info.local_rank), std::tuple(3, 6, 1));
  EXPECT_FALSE(info.by_mpi);
}

TEST(Launch, SrunsRanksMeetOnTheFirstNodeAtAPortOfTheStep) {
  std::map<std::string, std::string> variables = {{"SLURM_PROCID", "9"},
                                                  {"SLURM_NTASKS", "64"},
                                                  {"SLURM_STEP_NUM_TASKS", "11"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                                                  {"SLURM_LOCALID", "1"},
                                                  {"SLURM_NODEID", "2"},
                                                  {"SLURM_STEP_NODELIST", "rack2n[007-008,012]"},
                                                  {"SLURM_JOB_ID", "81"},
                                                  {"SLURM_STEP_ID", "0"}};
  const auto read = [&variables] {
    const Environment environment(variables);
    return rank_info_from_environment();
  };
  const RankInfo info = read();
  EXPECT_EQ(std::tuple(info.rank, info.world, info.local_rank, info.local_world),
            std::tuple(9, 11, 1, 3));
  EXPECT_EQ(info.master_address, "rack2n007");
  EXPECT_GE(info.master_port, 20000);
  EXPECT_LT(info.master_port, 32768) << "from there on the kernel gives ports out";
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NODEID"] = "0";
  EXPECT_EQ(read().master_port, info.master_port) << "every rank names the same";
  EXPECT_EQ(read().local_world, 4);
  variables["SLURM_STEP_ID"] = "1";
  EXPECT_NE(read().master_port, info.master_port) << "steps of a job run side by side";
  variables["SLURM_STEP_NODELIST"] = "gpu-a,gpu-b";
  EXPECT_EQ(read().master_address, "gpu-a");
  variables["SLURM_STEP_NODELIST"] = "r[1-2]n[5,9],login";
  EXPECT_EQ(read().master_address, "r1n5");
  variables["MASTER_ADDR"] = "10.0.0.1";
  variables["MASTER_PORT"] = "777";
  EXPECT_EQ(read().master_address, "10.0.0.1");
  EXPECT_EQ(read().master_port, 777);
}

TEST(Launch, SrunsRanksOnOneNodeMeetLocally) {
  const Environment environment({{"SLURM_PROCID", "1"},
                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                 {"SLURM_STEP_NODELIST", "node1"},
                                 {"SLURM_JOB_ID", "5"},
                                 {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(rank_info_from_environment().master_address, "127.0.0.1");
}

TEST(Launch, AnImpossibleRankIsTheUsersError) {
  {
    const Environment environment({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
    EXPECT_THROW(rank_info_from_environment(), UserError);
  }
  const Environment environment({{"RANK", "one"}, {"WORLD_SIZE", "4"}});
  EXPECT_THROW(rank_info_from_environment(), UserError);
}

TEST(Launch, ManyRanksWithoutAMeetingPlaceAreTheUsersError) {
  RankInfo info;
  info.world = 2;
  info.launcher = Launcher::srun;
  EXPECT_THROW(World{info}, UserError);
}

}  // namespace
}  // namespace veil
