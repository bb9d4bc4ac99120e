// However a rank fails, all ranks end within ten seconds, one line says which rank it was and why,
// and the exit code tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/test_paths.h"
#include "comm/communicator.h"

namespace veil {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Outcome {
  int exit_code = 0;
  double seconds = 0;
  int joined = 0;                  // ranks that said so on standard output
  std::vector<std::string> lines;  // everything else that was printed
};

Outcome run(const std::string& command) {
  Outcome outcome;
  const double start = steady_ms();
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.seconds = (steady_ms() - start) / 1000;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line == "joined") {
      ++outcome.joined;
    } else {
      outcome.lines.push_back(line);
    }
  }
  return outcome;
}

struct Failure {
  std::string how;
  std::string line;
  int exit_code;
};

void PrintTo(const Failure& failure, std::ostream* out) {
  *out << failure.how;
}

class RankFailure : public testing::TestWithParam<Failure> {
 protected:
  void SetUp() override {
    if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ways, RankFailure,
    testing::Values(Failure{"throw", "veil: rank 2: the loss is not a number", 1},
                    Failure{"user", "veil: rank 2: no such file", 2},
                    Failure{"thread", "veil: rank 2: thrown in a thread", 1},
                    Failure{"kill", "veil: rank 2: died (signal 9, Killed)", 137},
                    Failure{"segfault", "veil: rank 2: died (signal 11, Segmentation fault)", 139},
                    Failure{"exit", "veil: rank 2: ended without a word (exit code 7)", 7},
                    Failure{"quit", "veil: rank 2: ended without a word (exit code 1)", 1}),
    [](const auto& way) { return way.param.how; });

TEST_P(RankFailure, EndsAllRanksWithOneLineThatNamesTheRank) {
  const Outcome outcome = run(failing_rank() + " --ranks 3 " + GetParam().how + " 2");
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_THAT(outcome.lines, ElementsAre(GetParam().line));
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code);
  EXPECT_LT(outcome.seconds, 10);
}

TEST(RankFailures, RanksThatEndWellSayNothing) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const Outcome outcome = run(failing_rank() + " --ranks 3 none 0");
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_TRUE(outcome.lines.empty()) << outcome.lines[0];
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(RankFailures, WhenAllRanksFailOneIsTold) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const Outcome outcome = run(failing_rank() + " --ranks 3 all 0");
  EXPECT_THAT(outcome.lines, ElementsAre(HasSubstr(": all ranks fail")));
  EXPECT_EQ(outcome.exit_code, kExitFailed);
}

TEST(RankFailures, ARankThatEndsBeforeItJoinsEndsTheOthers) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const Outcome outcome = run(failing_rank() + " --ranks 3 early 1");
  ASSERT_FALSE(outcome.lines.empty());
  EXPECT_EQ(outcome.lines[0], "veil: a rank ended before it had joined (exit code 9)");
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_LT(outcome.seconds, 10);
}

// Where mpirun is not on PATH, ranks are processes that meet over TCP.
Outcome run_without_mpirun(const std::string& words) {
  return run("PATH=/nowhere " + failing_rank() + " --ranks 3 " + words);
}

TEST(RankFailuresWithoutMpirun, RanksThatEndWellSayNothing) {
  const Outcome outcome = run_without_mpirun("none 0");
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_TRUE(outcome.lines.empty()) << outcome.lines[0];
  EXPECT_EQ(outcome.exit_code, kExitDone);
}

TEST(RankFailuresWithoutMpirun, AFailureIsToldOnceAndItsCodeIsTheLaunchers) {
  const Outcome user = run_without_mpirun("user 2");
  EXPECT_EQ(user.joined, 3);
  EXPECT_THAT(user.lines, ElementsAre("veil: rank 2: no such file"));
  EXPECT_EQ(user.exit_code, kExitUsage);
  const Outcome killed = run_without_mpirun("kill 1");
  EXPECT_THAT(killed.lines, ElementsAre("veil: rank 1: died"));
  EXPECT_EQ(killed.exit_code, 137);
  // Ranks that nobody ends sleep for a minute.
  EXPECT_LT(user.seconds, 50);
  EXPECT_LT(killed.seconds, 50);
}

TEST(RankFailuresWithoutMpirun, ARankThatEndsBeforeItJoinsEndsTheOthers) {
  const Outcome outcome = run_without_mpirun("early 1");
  EXPECT_THAT(outcome.lines, ElementsAre("veil: a rank ended before it had joined (exit code 9)"));
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_LT(outcome.seconds, 60);  // they would wait two minutes for it
}

// Ranks as torchrun starts them, without MPI. The exit code is `witness`'s.
Outcome run_over_tcp(const std::string& how, int failing, int witness) {
  const int port = 20000 + static_cast<int>(getpid()) % 20000;
  std::string command =
      "export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + "; ";
  for (int rank = 0; rank < 3; ++rank) {
    command += fmt::format("RANK={0} {1} {2} {3} & p{0}=$!; ", rank, failing_rank(), how, failing);
  }
  Outcome outcome = run(command + fmt::format("wait $p{}; code=$?; wait; exit $code", witness));
  // the shell's word
  std::erase_if(outcome.lines, [](const std::string& line) { return line.ends_with("Killed"); });
  return outcome;
}

TEST(RankFailuresOverTcp, AThrownErrorIsToldOnceAndEndsAllRanks) {
  const Outcome outcome = run_over_tcp("user", 2, 1);
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_THAT(outcome.lines, ElementsAre("veil: rank 2: no such file"));
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_LT(outcome.seconds, 10);
}

TEST(RankFailuresOverTcp, AKilledRankEndsTheOthers) {
  const Outcome outcome = run_over_tcp("kill", 1, 2);
  EXPECT_THAT(outcome.lines, ElementsAre("veil: rank 1: died"));
  EXPECT_EQ(outcome.exit_code, kExitFailed);
  EXPECT_LT(outcome.seconds, 10);
}

TEST(RankFailuresOverTcp, AKilledRank0EndsTheOthers) {
  const Outcome outcome = run_over_tcp("kill", 0, 2);
  EXPECT_THAT(outcome.lines, ElementsAre("veil: rank 0: died"));
  EXPECT_EQ(outcome.exit_code, kExitFailed);
  EXPECT_LT(outcome.seconds, 10);
}

TEST(RankFailuresOverTcp, RanksThatEndWellSayNothing) {
  const Outcome outcome = run_over_tcp("none", 0, 0);
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_TRUE(outcome.lines.empty()) << outcome.lines[0];
}

}  // namespace
}  // namespace veil
