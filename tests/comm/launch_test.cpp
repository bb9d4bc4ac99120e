#include "comm/launch.h"

#include <gtest/gtest.h>

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
                                           "PMIX_RANK",
                                           "PMI_RANK",
                                           "PMI_FD",
                                           "VEIL_LAUNCHER_SOCKET"};
  std::map<std::string, std::string> before_;
};

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

TEST(Launch, TorchrunsVariablesAreReadAndItsAgentsPortIsLeftAlone) {
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
  }
  auto with_agent = base;
  with_agent.emplace("TORCHELASTIC_USE_AGENT_STORE", "True");
  const Environment environment(with_agent);
  EXPECT_EQ(rank_info_from_environment().master_port, 1235);
}

TEST(Launch, SrunsVariablesAreReadInsideAStepOnly) {
  std::map<std::string, std::string> variables = {
      {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "1"}};
  {
    const Environment environment(variables);
    EXPECT_EQ(rank_info_from_environment().launcher, Launcher::none)
        << "a batch script is not a rank";
  }
  variables.emplace("SLURM_STEP_ID", "0");
  const Environment environment(variables);
  const RankInfo info = rank_info_from_environment();
  EXPECT_EQ(info.launcher, Launcher::srun);
  EXPECT_EQ(std::tuple(info.rank, info.world, info.local_rank), std::tuple(3, 6, 1));
  EXPECT_FALSE(info.by_mpi);
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
