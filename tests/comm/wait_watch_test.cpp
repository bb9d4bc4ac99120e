#include "comm/wait_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace veil {
namespace {

TEST(WaitWatch, AnswersWhatTheWorkAnswers) {
  WaitWatch watch({600}, 0);
  EXPECT_EQ(watch.wait_for("its data loader", [] { return 7; }), 7);
  EXPECT_THROW(watch.wait_for("its data loader", []() -> int { throw std::runtime_error("read"); }),
               std::runtime_error);
  EXPECT_EQ(watch.wait_for("its data loader", [] { return 8; }), 8);
}

TEST(WaitWatchDeathTest, ALoaderThatHangsIsNamedAndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        WaitWatch watch({2}, 0);
        // Waits that end well do not add up.
        for (int i = 0; i < 6; ++i)
          watch.wait_for("what is quick",
                         [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); });
        const CallPlaceScope step(5);
        watch.wait_for("its data loader",
                       [] { std::this_thread::sleep_for(std::chrono::seconds(60)); });
      },
      ::testing::ExitedWithCode(kExitFailed),
      "veil: waiting for its data loader, step 5, for 1 s.*\n"
      "veil: waited 2 s for its data loader, step 5");
}

}  // namespace
}  // namespace veil
