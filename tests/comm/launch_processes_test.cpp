#include "comm/launch_processes.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

using Act = StopRequest::Act;

TEST(StopRequest, TheFirstSignalAsksAndASecondLaterOneEnds) {
  for (const int number : kStopSignals) {
    StopRequest stop;
    EXPECT_FALSE(stop.came());
    EXPECT_EQ(stop.hear(number, OnSignal::ask_ranks, 1000), Act::ask);
    EXPECT_EQ(stop.exit_code(kExitStopped, OnSignal::ask_ranks), kExitStopped);
    EXPECT_EQ(stop.exit_code(kExitDone, OnSignal::ask_ranks), kExitDone);
    EXPECT_EQ(stop.exit_code(137, OnSignal::ask_ranks), kExitFailed);
    EXPECT_EQ(stop.hear(number, OnSignal::ask_ranks, 1000 + kSameRequestMs + 1), Act::end);
    EXPECT_EQ(stop.exit_code(kExitStopped, OnSignal::ask_ranks), 128 + number);
  }
}

TEST(StopRequest, WhatFollowsAtOnceIsTheSameRequestUnlessItIsCtrlC) {
  StopRequest stop;
  stop.hear(SIGTERM, OnSignal::ask_ranks, 1000);
  EXPECT_EQ(stop.hear(SIGTERM, OnSignal::ask_ranks, 1001), Act::nothing);
  EXPECT_EQ(stop.hear(SIGUSR1, OnSignal::ask_ranks, 1000 + kSameRequestMs), Act::nothing);
  EXPECT_EQ(stop.hear(SIGINT, OnSignal::ask_ranks, 1002), Act::end);
}

TEST(StopRequest, RanksThatAreNotAskedEndAtOnce) {
  StopRequest stop;
  EXPECT_EQ(stop.hear(SIGHUP, OnSignal::end_ranks, 1000), Act::end);
  EXPECT_EQ(stop.exit_code(1, OnSignal::end_ranks), 128 + SIGHUP);
}

}  // namespace
}  // namespace veil
