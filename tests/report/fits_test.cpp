#include "report/fits.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace veil {
namespace {

using Points = std::vector<std::pair<double, double>>;
using ::testing::HasSubstr;

// A law at the first `count` of 1024, 2048, ...; errors change their sign from point to point.
Points points_of(int count, const std::function<double(double)>& law, double error = 0) {
  Points points;
  double sign = 1;
  for (int i = 0; i < count; ++i) {
    const double length = std::ldexp(1024, i);
    points.emplace_back(length, law(length) * (1 + sign * error));
    sign = -sign;
  }
  return points;
}

std::string shown(double amount) {
  return fmt::format("{:.2f} s", amount);
}

double line(double t) {
  return 20 + 0.005 * t;
}
double square(double t) {
  return 20 + 0.005 * t + 4e-6 * t * t;
}

TEST(GrowthFit, EachLawIsFoundWithItsCoefficients) {
  const GrowthFit constant = *fit_growth(points_of(2, [](double) { return 7.0; }));
  EXPECT_EQ(constant.law, Law::constant);
  EXPECT_DOUBLE_EQ(constant.constant, 7);
  const GrowthFit linear = *fit_growth(points_of(3, line));
  EXPECT_EQ(linear.law, Law::linear);
  EXPECT_NEAR(linear.constant, 20, 1e-9);
  EXPECT_NEAR(linear.linear, 0.005, 1e-12);
  const GrowthFit quadratic = *fit_growth(points_of(4, square));
  EXPECT_EQ(quadratic.law, Law::quadratic);
  EXPECT_NEAR(quadratic.square, 4e-6, 1e-12);
  EXPECT_NEAR(quadratic.at(4096), square(4096), 1e-6);
}

TEST(GrowthFit, ALawNeedsOneLengthMoreThanItHasCoefficients) {
  EXPECT_EQ(fit_growth(points_of(2, line))->law, Law::untold);
  EXPECT_EQ(fit_growth(points_of(3, square))->law, Law::untold);
  EXPECT_THAT(growth_words(*fit_growth(points_of(3, square)), shown),
              HasSubstr("3 lengths cannot tell the law"));
  EXPECT_THAT(growth_words(*fit_growth(points_of(2, line)), shown),
              HasSubstr("2 lengths cannot tell the law"));
}

// Measured once: 21.8 to 31.3 GiB, called "does not grow" by an interval that held 0; and T^1.42,
// called linear.
TEST(GrowthFit, GrowthIsNeverCalledConstantNorAPowerLinear) {
  const GrowthFit memory = *fit_growth({{1024, 21.8}, {2048, 24.9}, {4096, 31.3}});
  EXPECT_EQ(memory.law, Law::linear);
  for (const double power : {1.1, 1.2, 1.42, 1.8, 0.5}) {
    for (const int count : {3, 4, 5}) {
      const Points points = points_of(count, [&](double t) { return std::pow(t, power); });
      EXPECT_NE(fit_growth(points)->law, Law::linear) << power << " " << count;
      EXPECT_NE(fit_growth(points)->law, Law::constant) << power << " " << count;
    }
  }
}

TEST(GrowthFit, NoiseBeyondTheToleranceLeavesTheLawUntold) {
  EXPECT_EQ(fit_growth(points_of(5, line, 0.01))->law, Law::linear);
  const GrowthFit noisy = *fit_growth(points_of(5, line, 0.1));
  EXPECT_EQ(noisy.law, Law::untold);
  EXPECT_THAT(growth_words(noisy, shown), HasSubstr("is within 2% of every length"));
  EXPECT_LE(fit_growth(points_of(5, line, 0.01))->deviation, 0.02);
}

TEST(GrowthFit, TheWordsHoldTheNumbers) {
  EXPECT_EQ(growth_words(*fit_growth(points_of(3, line)), shown),
            "grows linearly with T from 1024 to 4096: 20.00 s plus 5.00 s per 1000 tokens, "
            "within 0.0%");
  EXPECT_EQ(growth_words(*fit_growth(points_of(3, [](double t) { return t / 1000; })), shown),
            "grows in proportion to T from 1024 to 4096: 1.00 s per 1000 tokens, within 0.0%");
  EXPECT_THAT(growth_words(*fit_growth(points_of(2, [](double) { return 7.0; })), shown),
              HasSubstr("stays at 7.00 s from T = 1024 to 2048, within 0.0%"));
  EXPECT_THAT(growth_words(*fit_growth(points_of(4, square)), shown),
              HasSubstr("at T = 8192 20.00 s plus 40.96 s by T and 268.44 s by T^2, within 0.0%"));
  EXPECT_EQ(growth_label(*fit_growth(points_of(4, square))), "quadratic");
  EXPECT_EQ(law_text(*fit_growth(points_of(3, line)), shown), "20.00 s + 5.00 s per 1000 tokens");
}

TEST(GrowthFit, FewerThanTwoLengthsAndWhatIsNotPositiveGiveNothing) {
  EXPECT_FALSE(fit_growth({{1024, 1}}));
  EXPECT_FALSE(fit_growth({{1024, 1}, {1024, 2}}));
  EXPECT_FALSE(fit_growth({{1024, 0}, {2048, NAN}, {4096, 3}}));
}

}  // namespace
}  // namespace veil
