#include "privacy/privacy_loss.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

namespace veil::privacy {
namespace {

// E_P[(1 - exp(epsilon - L))+] of mass on a grid without tilt.
double delta_of(const GridMass& mass, const Grid& grid, double epsilon) {
  double sum = 0;
  for (size_t i = 0; i < mass.size(); ++i)
    sum -= mass[i] * std::min(0.0, std::expm1(epsilon - grid.loss(i)));
  return sum;
}

double sum_of(const GridMass& mass) {
  double sum = 0;
  for (const double value : mass) sum += value;
  return sum;
}

template <typename Test>
void for_many(Test test) {
  for (const double sigma : {0.2, 0.5, 1.0, 3.0, 20.0}) {
    for (const double q : {1e-4, 1e-2, 0.3, 1.0}) {
      for (const double spacing : {1e-1, 1e-3}) {
        for (const Direction direction : {Direction::remove, Direction::add}) {
          SCOPED_TRACE(fmt::format("sigma {} q {} spacing {} direction {}", sigma, q, spacing,
                                   static_cast<int>(direction)));
          const StepLoss loss{.sigma = sigma, .q = q, .direction = direction};
          const Cut cut{.low = -10 * sigma, .high = loss.end(10)};
          Grid grid{
              .spacing = spacing, .offset = grid_offset(loss, cut, spacing), .tilt = 0, .scale = 0};
          grid.points = LossProfile(loss, cut).grid_points(loss.at(cut.low), grid);
          test(loss, cut, grid);
        }
      }
    }
  }
}

TEST(PrivacyLoss, APositionIsWhereTheLossIs) {
  for_many([](const StepLoss& loss, Cut cut, const Grid&) {
    for (const double part : {0.2, 0.5, 0.8}) {
      const double y = cut.low + part * (cut.high - cut.low), value = loss.at(y),
                   back = loss.position(value);
      // Where the loss is flat many positions have it to the last digit.
      if (!std::isfinite(back)) continue;
      EXPECT_NEAR(loss.at(back), value, 1e-12 * std::max(1.0, std::abs(value)));
    }
  });
}

// The allowance for floating point in composition.cpp rests on this.
TEST(PrivacyLoss, RoundedMassesSumToOneWithinTheAllowance) {
  for_many([](const StepLoss& loss, Cut cut, const Grid& grid) {
    EXPECT_NEAR(sum_of(rounded_up(loss, cut, grid)), 1, 5e-14);
    EXPECT_NEAR(sum_of(rounded_down(loss, cut, grid)), 1, 5e-14);
  });
}

TEST(PrivacyLoss, RoundingDownNeverExceedsRoundingUpAtAnyEpsilon) {
  for_many([](const StepLoss& loss, Cut cut, const Grid& grid) {
    const GridMass up = rounded_up(loss, cut, grid), down = rounded_down(loss, cut, grid);
    for (const double epsilon : {-0.5, -1e-3, 0.0, 1e-4, 0.01, 0.3, 2.0, 20.0})
      EXPECT_LE(delta_of(down, grid, epsilon), delta_of(up, grid, epsilon) + 1e-13) << epsilon;
  });
}

TEST(PrivacyLoss, ATiltOnlyWeighsTheMasses) {
  const StepLoss loss{.sigma = 0.8, .q = 0.05, .direction = Direction::remove};
  const Cut cut{.low = -8, .high = loss.end(10)};
  Grid plain{.spacing = 0.01, .offset = 0.002, .tilt = 0, .scale = 0};
  plain.points = LossProfile(loss, cut).grid_points(loss.at(cut.low), plain);
  Grid tilted = plain;
  tilted.tilt = 3;
  tilted.scale = 0.7;
  // Rounding down cuts its cells by search: they move a little.
  for (const auto rounded : {rounded_up, rounded_down}) {
    const GridMass without = rounded(loss, cut, plain), with = rounded(loss, cut, tilted);
    for (size_t i = 0; i < with.size(); ++i) {
      const double expected = without[i] * std::exp(3 * plain.loss(i) - 0.7);
      EXPECT_NEAR(with[i], expected, 1e-6 * expected + 1e-300) << i;
    }
  }
}

}  // namespace
}  // namespace veil::privacy
