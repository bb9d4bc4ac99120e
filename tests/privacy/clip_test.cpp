#include "privacy/clip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace veil::privacy {
namespace {

const double kNan = std::nan("");

TEST(AdaptiveClip, TheCountsNoiseHasItsDeviationAndBelongsToItsStep) {
  const AdaptiveClip adaptive{.quantile = 0.5, .rate = 0.2, .count_deviation = 3};
  const ChaChaKey key{{1, 2, 3}};
  const int64_t steps = 20'000;
  double sum = 0, squares = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const double noise = noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, step) - 7;
    sum += noise;
    squares += noise * noise;
  }
  EXPECT_NEAR(sum / steps, 0, 5 * 3 / std::sqrt(steps));
  EXPECT_NEAR(squares / steps, 9, 5 * 9 * std::sqrt(2.0 / steps));
  EXPECT_EQ(noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5),
            noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5));
  EXPECT_NE(noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5),
            noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 6));
}

// Two Gaussians released together cost what one with 1/sigma^2 = 1/sigma_g^2 + 1/(2 sigma_b)^2
// does.
TEST(AdaptiveClip, CountAndGradientsTogetherCostWhatSigmaDoes) {
  for (const double sigma : {0.5, 1.0, 4.0}) {
    const double count = 10, gradient = adaptive_gradient_sigma(sigma, count);
    EXPECT_GT(gradient, sigma);
    EXPECT_NEAR(1 / (gradient * gradient) + 1 / (4 * count * count), 1 / (sigma * sigma),
                1e-12 / (sigma * sigma));
  }
  EXPECT_NEAR(adaptive_gradient_sigma(1, 1), 1 / std::sqrt(0.75), 1e-15);
  EXPECT_THROW(adaptive_gradient_sigma(1, 0.5), UserError);
  EXPECT_THROW(adaptive_gradient_sigma(1, kNan), UserError);
}

}  // namespace
}  // namespace veil::privacy
