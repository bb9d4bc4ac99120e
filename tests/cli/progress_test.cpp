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
  EXPECT_EQ(fitted_line(parts, 100), "step 1  rate 2  loss 3  left 4");
  EXPECT_EQ(fitted_line(parts, 25), "step 1  loss 3  left 4");
  EXPECT_EQ(fitted_line(parts, 16), "step 1  loss 3");
  EXPECT_EQ(fitted_line(parts, 3), "step 1  loss 3") << "what must stay stays";
}

}  // namespace
}  // namespace veil
