#include "cli/progress.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

TEST(Progress, ABarFillsWithWhatIsDone) {
  EXPECT_EQ(progress_bar(0, 10), "[" + std::string(24, '.') + "]");
  EXPECT_EQ(progress_bar(5, 10), "[" + std::string(12, '#') + std::string(12, '.') + "]");
  EXPECT_EQ(progress_bar(12, 10), "[" + std::string(24, '#') + "]");
}

TEST(Progress, ALineLosesItsMostDispensablePartsUntilItFits) {
  const std::vector<LinePart> parts = {{"step 1"}, {"rate 2", 3}, {"loss 3"}, {"left 4", 1}};
  const auto fitted = [&](size_t columns) { return LineFitter().fitted(parts, columns); };
  EXPECT_EQ(fitted(100), "step 1  rate 2  loss 3  left 4");
  EXPECT_EQ(fitted(25), "step 1  loss 3  left 4");
  EXPECT_EQ(fitted(16), "step 1  loss 3");
  EXPECT_EQ(fitted(3), "step 1  loss 3") << "what must stay stays";
}

TEST(Progress, WhatOneLineHasNoRoomForTheNextOnesLeaveOutToo) {
  LineFitter fitter;
  const auto line = [](const std::string& rate) {
    return std::vector<LinePart>{{"step 1"}, {rate, 3}, {"left 4", 1}};
  };
  EXPECT_EQ(fitter.fitted(line("rate 2"), 25), "step 1  rate 2  left 4");
  EXPECT_EQ(fitter.fitted(line("rate 1000000"), 25), "step 1  left 4");
  EXPECT_EQ(fitter.fitted(line("rate 2"), 25), "step 1  left 4");
  EXPECT_EQ(fitter.fitted(line("rate 2"), 30), "step 1  rate 2  left 4") << "a wider terminal";
}

}  // namespace
}  // namespace veil
