#include "report/fits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace veil {
namespace {

using Points = std::vector<std::pair<double, double>>;

// c T^k with a relative error that changes its sign from point to point.
Points law(double factor, double exponent, double error = 0) {
  Points points;
  double sign = 1;
  for (const double length : {1024, 2048, 4096, 8192, 16384}) {
    points.emplace_back(length, factor * std::pow(length, exponent) * (1 + sign * error));
    sign = -sign;
  }
  return points;
}

TEST(Fits, ExponentsOneAndTwoAreFoundAndNamed) {
  for (const double exponent : {0.0, 1.0, 2.0}) {
    const auto fit = fit_power(law(0.003, exponent));
    ASSERT_TRUE(fit);
    EXPECT_NEAR(fit->exponent, exponent, 1e-9);
    EXPECT_NEAR(fit->factor, 0.003, 1e-9);
    EXPECT_NEAR(fit->high - fit->low, 0, 1e-6);
    EXPECT_EQ(growth_of(*fit), exponent == 0   ? Growth::constant
                               : exponent == 1 ? Growth::linear
                                               : Growth::quadratic);
  }
  EXPECT_THAT(growth_words(*fit_power(law(1, 2))), ::testing::HasSubstr("quadratically"));
}

TEST(Fits, TheIntervalHoldsTheTruthUnderNoiseAndGrowsWithIt) {
  const auto quiet = fit_power(law(2, 1, 0.02)), loud = fit_power(law(2, 1, 0.2));
  ASSERT_TRUE(quiet && loud);
  EXPECT_LT(quiet->low, 1);
  EXPECT_GT(quiet->high, 1);
  EXPECT_GT(loud->high - loud->low, 3 * (quiet->high - quiet->low));
  EXPECT_EQ(growth_of(*quiet), Growth::linear);
  EXPECT_EQ(growth_of(*fit_power(law(1, 1.5))), Growth::between);
  EXPECT_EQ(growth_of(*fit_power(law(1, 0.5))), Growth::below_linear);
  EXPECT_EQ(growth_of(*fit_power(law(1, 2.6))), Growth::above_quadratic);
  EXPECT_EQ(growth_of(*fit_power(law(1, 1, 0.9))), Growth::unclear);
}

TEST(Fits, ALineThroughTwoPointsHasNoConfidenceAndOneIsNoLine) {
  const auto two = fit_power({{1024, 1}, {2048, 2}});
  ASSERT_TRUE(two);
  EXPECT_NEAR(two->exponent, 1, 1e-12);
  EXPECT_EQ(growth_of(*two), Growth::unclear);
  EXPECT_EQ(exponent_words(*two), "T^1.00");
  EXPECT_EQ(exponent_words({.exponent = 1.02, .low = 0.97, .high = 1.07, .factor = 1, .points = 5}),
            "T^1.02 (95%: 0.97 to 1.07)");
  EXPECT_EQ(growth_words({.exponent = 1.2, .low = 0.4, .high = 2.0, .factor = 1, .points = 3}),
            "follows no law that the points could tell")
      << "1 and 2 are both inside";
  EXPECT_FALSE(fit_power({{1024, 1}}));
  EXPECT_FALSE(fit_power({{1024, 1}, {1024, 2}}));
  EXPECT_FALSE(fit_power({{1024, 0}, {2048, NAN}, {4096, 3}}));
}

}  // namespace
}  // namespace veil
