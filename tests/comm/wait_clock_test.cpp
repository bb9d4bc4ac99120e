#include "comm/wait_clock.h"

#include <gtest/gtest.h>

#include "comm/call_place.h"
#include "comm/overdue.h"

namespace veil {
namespace {

using Due = WaitClock::Due;

// Looks every half second from `begin_s` on; the seconds at which something was due.
std::vector<std::pair<double, Due>> dues(WaitClock& clock, WaitLimits limits, double begin_s,
                                         double end_s) {
  std::vector<std::pair<double, Due>> found;
  for (double now = begin_s; now <= end_s; now += 0.5) {
    const Due due = clock.look(limits, (1000 + now) * 1000);
    if (due != Due::nothing) found.emplace_back(now, due);
    if (due == Due::end) break;
  }
  return found;
}

TEST(WaitClock, ALineIsDueEveryThirtySecondsAndTheEndAtTheTimeout) {
  WaitClock clock;
  const std::vector<std::pair<double, Due>> expected = {
      {30, Due::notice}, {60, Due::notice}, {90, Due::notice}, {100, Due::end}};
  EXPECT_EQ(dues(clock, {100}, 0, 200), expected);
  EXPECT_EQ(clock.waited_s(), 100);
}

TEST(WaitClock, AShortTimeoutHasItsLineHalfWay) {
  WaitClock clock;
  const std::vector<std::pair<double, Due>> expected = {{2, Due::notice}, {4, Due::end}};
  EXPECT_EQ(dues(clock, {4}, 0, 10), expected);
}

TEST(WaitClock, WithoutATimeoutOnlyLinesAreDue) {
  WaitClock clock;
  EXPECT_EQ(dues(clock, {0}, 0, 3600).size(), 120u);
  EXPECT_EQ(dues(clock, {0}, 3600, 3610).size(), 0u);
}

// A job that a scheduler suspends for an hour: all ranks stop and go on together.
TEST(WaitClock, TimeInWhichTheProcessItselfWasStoppedDoesNotCount) {
  WaitClock clock;
  EXPECT_TRUE(dues(clock, {100}, 0, 20).empty());
  const auto after = dues(clock, {100}, 3600, 3700);
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after.back().second, Due::end);
  // 20 s before, 2 s at most for the gap, 78 s after it
  EXPECT_EQ(after.back().first, 3678);
}

TEST(WaitClock, WhatMovesBeginsAnew) {
  WaitClock clock;
  const std::vector<std::pair<double, Due>> one_line = {{12.5, Due::notice}};
  EXPECT_EQ(dues(clock, {25}, 0, 24), one_line);
  clock.restart();
  const std::vector<std::pair<double, Due>> anew = {{36.5, Due::notice}, {49, Due::end}};
  EXPECT_EQ(dues(clock, {25}, 24, 100), anew);
}

TEST(OverdueWait, TheFirstRankThatIsNotWaitedForSpeaks) {
  const OverdueWait zero{{0}, "barrier"}, two{{2}, "barrier"}, most{{0, 1, 3}, "barrier"};
  EXPECT_TRUE(speaks_for(zero, 1));
  EXPECT_FALSE(speaks_for(zero, 2));
  EXPECT_TRUE(speaks_for(two, 0));
  EXPECT_FALSE(speaks_for(two, 1));
  EXPECT_TRUE(speaks_for(most, 2));
}

TEST(OverdueWait, RanksCollectiveStepAndRowAreNamed) {
  const CallPlaceScope step(7);
  OverdueWait wait{{1, 3}, "all_reduce of 10 fp32", current_place()};
  EXPECT_EQ(describe(wait), "ranks 1, 3 in all_reduce of 10 fp32, step 7");
  {
    const CallPlaceScope row("body", 12, "gather", "layers.1");
    wait.place = current_place();
  }
  EXPECT_EQ(describe(wait),
            "ranks 1, 3 in all_reduce of 10 fp32, step 7, body row 12 (gather layers.1)");
  EXPECT_EQ(current_place().part, "") << "the row's scope has ended";
  wait.whom = "its data loader";
  EXPECT_EQ(describe(wait), "its data loader, step 7, body row 12 (gather layers.1)");
}

}  // namespace
}  // namespace veil
