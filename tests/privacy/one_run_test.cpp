// The bound of one run with canaries, against values by hand.
#include "privacy/one_run.h"

#include <gtest/gtest.h>

#include <cmath>

namespace veil::privacy {
namespace {

TEST(OneRun, TheBoundIsSteinkesBinomial) {
  // All right with nothing learnt: 2^-10.
  EXPECT_NEAR(one_run_p_value(10, 10, 10, 0, 0), std::pow(2, -10), 1e-15);
  // 100 of 100 right refutes every epsilon up to where (e^eps / (1 + e^eps))^100 is 0.05.
  const double p = std::pow(0.05, 0.01);
  EXPECT_NEAR(one_run_epsilon(100, 100, 100, 0, 0.95), std::log(p / (1 - p)), 1e-6);
  EXPECT_EQ(one_run_epsilon(100, 100, 52, 0, 0.95), 0);
  // delta only weakens it, and so does abstaining less wisely.
  EXPECT_LT(one_run_epsilon(100, 100, 100, 1e-3, 0.95), one_run_epsilon(100, 100, 100, 0, 0.95));
  // By hand: m = 4, r = 2, v = 2, eps 0: 1/4 + 2 m delta max(P[1] / 1, (P[0] + P[1]) / 2).
  EXPECT_NEAR(one_run_p_value(4, 2, 2, 0, 0.01), 0.25 + 8 * 0.01 * 0.5, 1e-12);
}

}  // namespace
}  // namespace veil::privacy
