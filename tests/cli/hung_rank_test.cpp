// A rank of a training run that is stopped: the others say which one and where, all end, and the
// run continues from its last checkpoint with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/training.h"
#include "comm/communicator.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;

class ProgramHungRank : public TrainingTest {
 protected:
  // The process that is this rank of the run in work(); 0: none yet.
  pid_t process_of_rank(int rank) const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      if (process <= 0) continue;
      const std::string line = text(entry.path() / "cmdline");
      if (line.find(work().string()) == std::string::npos || !line.starts_with(veil_program()))
        continue;
      const std::string all = '\0' + text(entry.path() / "environ");
      for (const char* name : {"OMPI_COMM_WORLD_RANK=", "RANK="}) {
        if (all.find('\0' + std::string(name) + std::to_string(rank) + '\0') != std::string::npos)
          return process;
      }
    }
    return 0;
  }

  // Whether the process has ended or is about to. It may stay as a zombie: mpirun kills it and ends
  // before it has waited for it, and who waits then is up to the machine.
  static bool ends(pid_t process) {
    for (int round = 0; round < 3000; ++round) {
      const std::string status = text(fs::path("/proc") / std::to_string(process) / "status");
      if (status.empty() || status.find("\nState:\tZ") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Stops a rank of `launcher veil train`, reads what the others say, and resumes the run with the
  // same line.
  void expect_named_and_resumed(const std::string& environment, int ranks, int hung, int speaker,
                                const std::string& device = "cpu") {
    const auto words = [&](const std::string& more) {
      std::string line = TrainingTest::words(more);
      return line.replace(line.find("--device cpu"), 12, "--device " + device);
    };
    const fs::path run = work() / "run";
    fs::create_directory(run);
    const std::string settings =
        fmt::format("--ranks {} --steps 30 --checkpoint-every 1 --strategy zero3 ", ranks);
    ASSERT_EQ(
        veil(words(settings + "--export '" + (work() / "whole").string() + "'"), environment).code,
        kExitDone);
    const std::string line = words(settings + "--resume '" + run.string() + "' --export '" +
                                   (work() / "resumed").string() + "'");
    Child child(work(), line + " --collective-timeout 6", environment);
    wait_for_steps(child, run, 3);
    ASSERT_TRUE(child.runs()) << text(work() / "child.err");
    const pid_t process = process_of_rank(hung);
    ASSERT_GT(process, 0);
    kill(process, SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(child.wait(), kExitFailed);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    RecordProperty("seconds", std::to_string(seconds));
    EXPECT_TRUE(ends(process)) << "the stopped rank is still there";
    // A collective of the step, a row of its schedule or the sum of the losses after it.
    const std::string where = fmt::format(
        "rank {} in (all_gather|reduce_scatter|all_reduce|barrier).*, step [0-9]+"
        "(, (prologue|body|tail) row [0-9]+ \\(.*\\))?",
        hung);
    const std::string said = text(work() / "child.err");
    EXPECT_THAT(said, ContainsRegex("veil: waiting for " + where +
                                    ", for [0-9]+ s; the run ends after 6 s\n"));
    EXPECT_THAT(said, ContainsRegex(fmt::format("veil: rank {}: waited [0-9]+ s for {}; "
                                                "--collective-timeout is 6 s\n",
                                                speaker, where)));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    const Answer resumed = veil(line, environment);
    ASSERT_EQ(resumed.code, kExitDone) << resumed.err;
    EXPECT_THAT(resumed.out, ::testing::HasSubstr("resumed   after step "));
    EXPECT_EQ(logged_steps(run), steps_to(30));
    EXPECT_TRUE(weight_bytes(work() / "resumed") == weight_bytes(work() / "whole"));
  }
};

TEST_F(ProgramHungRank, IsNamedAndTheRunResumesOverMpi) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  expect_named_and_resumed("", 2, 1, 0);
}

TEST_F(ProgramHungRank, IsNamedAndTheRunResumesOverTcp) {
  expect_named_and_resumed("PATH=/nowhere", 4, 0, 1);
}

// Two ranks on one GPU, which go through MPI and pinned memory.
class GpuHungRank : public ProgramHungRank {};

TEST_F(GpuHungRank, ThatSharesTheGpuIsNamedAndTheRunResumes) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  expect_named_and_resumed("", 2, 1, 0, "gpu --share-gpu");
}

}  // namespace
}  // namespace veil
