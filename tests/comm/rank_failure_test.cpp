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
using testing::MatchesRegex;

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

class RankFailureWay : public testing::TestWithParam<Failure> {
 protected:
  void SetUp() override {
    if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ways, RankFailureWay,
    testing::Values(Failure{"throw", "veil: rank 2: the loss is not a number", 1},
                    Failure{"user", "veil: rank 2: no such file", 2},
                    Failure{"thread", "veil: rank 2: thrown in a thread", 1},
                    Failure{"kill", "veil: rank 2: died (signal 9, Killed)", 137},
                    Failure{"segfault", "veil: rank 2: died (signal 11, Segmentation fault)", 139},
                    Failure{"exit", "veil: rank 2: ended without a word (exit code 7)", 7},
                    Failure{"quit", "veil: rank 2: ended without a word (exit code 1)", 1}),
    [](const auto& way) { return way.param.how; });

TEST_P(RankFailureWay, EndsAllRanksWithOneLineThatNamesTheRank) {
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

// Seconds that the others wait for a rank that is stopped.
constexpr const char* kStopTimeout = "4";

// A rank that hangs is told half way and at the end of the timeout, by the first of those that wait
// for it; all ranks end, the stopped one too. Nobody hears of `seconds` more.
void expect_hung_rank_is_named(const Outcome& outcome, int hung, int speaker) {
  const std::string where = fmt::format(
      "rank {} in all_reduce of 1000 fp32, step 7, body row 3 \\(reduce layers.1\\)", hung);
  // A busy machine may look at the clock late.
  EXPECT_THAT(
      outcome.lines,
      ElementsAre(
          MatchesRegex("veil: waiting for " + where + ", for [0-9]+ s; the run ends after 4 s"),
          MatchesRegex(fmt::format("veil: rank {}: waited [0-9]+ s for {}; --collective-timeout is "
                                   "4 s",
                                   speaker, where))));
  EXPECT_EQ(outcome.exit_code, kExitFailed);
  EXPECT_GE(outcome.seconds, 4);
}

TEST(RankFailures, AHungRankIsNamedAndEndsTheRun) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  expect_hung_rank_is_named(run(failing_rank() + " --ranks 4 stop 2 " + kStopTimeout), 2, 0);
  expect_hung_rank_is_named(run(failing_rank() + " --ranks 2 stop 0 " + kStopTimeout), 0, 1);
}

TEST(RankFailures, AHungRankIsNamedUnderPlainMpirun) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  Outcome outcome =
      run("mpirun --quiet -n 4 --oversubscribe --bind-to none --allow-run-as-root "
          "--mca plm isolated --mca btl vader,self --mca "
          "btl_vader_single_copy_mechanism none " +
          failing_rank() + " stop 1 " + kStopTimeout);
  // what mpirun says of MPI_Abort
  std::erase_if(outcome.lines, [](const std::string& line) { return !line.starts_with("veil: "); });
  expect_hung_rank_is_named(outcome, 1, 0);
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

TEST(RankFailuresWithoutMpirun, AHungRankIsNamedAndEndsTheRun) {
  const std::string ranks = "PATH=/nowhere " + failing_rank() + " --ranks ";
  expect_hung_rank_is_named(run(ranks + "4 stop 3 " + kStopTimeout), 3, 0);
  expect_hung_rank_is_named(run(ranks + "4 stop 0 " + kStopTimeout), 0, 1);
}

// Ranks as torchrun starts them, without MPI. The exit code is `witness`'s. A rank that is stopped
// is killed when the witness has ended.
Outcome run_over_tcp(const std::string& how, int failing, int witness, int ranks = 3,
                     const std::string& timeout = kStopTimeout) {
  const int port = 20000 + static_cast<int>(getpid()) % 20000;
  const bool stops = how.starts_with("stop");
  std::string command = fmt::format(
      "export WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} VEIL_JOB_TOKEN=of_rank_failures; ",
      ranks, port);
  for (int rank = 0; rank < ranks; ++rank) {
    command += fmt::format("RANK={0} {1} {2} {3} {4} & p{0}=$!; ", rank, failing_rank(), how,
                           failing, stops ? timeout : "");
  }
  Outcome outcome = run(command + fmt::format("wait $p{}; code=$?; {} wait; exit $code", witness,
                                              stops ? fmt::format("kill -9 $p{};", failing) : ""));
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

TEST(RankFailuresOverTcp, AHungRankIsNamedAndEndsTheOthers) {
  expect_hung_rank_is_named(run_over_tcp("stop", 1, 0, 2), 1, 0);
  expect_hung_rank_is_named(run_over_tcp("stop", 0, 1, 4), 0, 1);
}

// The collectives of NCCL run on the GPU; the rank is known by its silence.
TEST(RankFailuresOverTcp, AHungRankIsNamedWhereCollectivesAreNotSeen) {
  const auto named = [](int hung, int witness) {
    const Outcome outcome = run_over_tcp("stop_unseen", hung, witness, 3, "8");
    const std::string where = fmt::format("rank {} in collectives by NCCL, step 7", hung);
    EXPECT_THAT(outcome.lines,
                testing::Contains(MatchesRegex(fmt::format(
                    "veil: rank {}: waited [0-9]+ s for {}; --collective-timeout is 8 s", witness,
                    where))));
    EXPECT_EQ(outcome.exit_code, kExitFailed);
  };
  named(2, 0);
  named(0, 1);
}

// A rank of another job, or somebody who wants to be rank 1: refused, while rank 0 waits on.
TEST(RankFailuresOverTcp, ARankWithAnotherTokenIsRefused) {
  const int port = 20000 + static_cast<int>(getpid()) % 20000;
  const Outcome outcome =
      run(fmt::format("export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={0}; "
                      "RANK=0 VEIL_JOB_TOKEN=0123456789abcdef {1} none 0 & p0=$!; "
                      "RANK=1 VEIL_JOB_TOKEN=0123456789abcdeX {1} none 0; code=$?; "
                      "RANK=1 VEIL_JOB_TOKEN=0123456789abcdef {1} none 0 && wait $p0 && exit $code",
                      port, failing_rank()));
  EXPECT_EQ(outcome.joined, 2);
  EXPECT_THAT(outcome.lines,
              ElementsAre(fmt::format("veil: rank 0 at 127.0.0.1:{} does not accept this rank's "
                                      "job token: set VEIL_JOB_TOKEN to the same secret on every "
                                      "rank",
                                      port)));
  EXPECT_EQ(outcome.exit_code, kExitUsage);
}

TEST(RankFailuresOverTcp, WhatIsNotRank0IsNotBelieved) {
  // It accepts anyone, and says that all are there.
  const int port = 20000 + static_cast<int>(getpid()) % 20000;
  const Outcome outcome = run(fmt::format(
      "timeout 30 python3 -c \"import socket, struct; s = socket.create_server(('127.0.0.1', "
      "{0})); "
      "c = s.accept()[0]; c.sendall(struct.pack('<iiQ', 6, 0, 4) + b'abcd'); c.recv(4096); "
      "text = b'0' * 64 + b'\\n' + b'token\\n127.0.0.1 1\\n127.0.0.1 2\\n'; "
      "c.sendall(struct.pack('<iiQ', 1, 0, len(text)) + text); c.recv(4096)\" & "
      "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={0} RANK=1 VEIL_JOB_TOKEN=0123456789abcdef "
      "{1} none 0; code=$?; wait; exit $code",
      port, failing_rank()));
  EXPECT_EQ(outcome.joined, 0);
  EXPECT_THAT(outcome.lines,
              ElementsAre(HasSubstr("is not rank 0 of this job: check MASTER_ADDR")));
  EXPECT_EQ(outcome.exit_code, kExitUsage);
}

TEST(RankFailuresOverTcp, RanksThatEndWellSayNothing) {
  const Outcome outcome = run_over_tcp("none", 0, 0);
  EXPECT_EQ(outcome.joined, 3);
  EXPECT_TRUE(outcome.lines.empty()) << outcome.lines[0];
}

}  // namespace
}  // namespace veil
