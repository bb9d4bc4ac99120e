// The bound of `veil audit canary` on noise of a fixed key whose epsilon is known.
#include "audit/canary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/noise_values.h"
#include "kernels/philox.h"
#include "privacy/accountant.h"
#include "privacy/numerics.h"
#include "privacy/pld.h"

namespace veil::audit {
namespace {

constexpr double kDelta = 1e-5;

// One standard normal for each number.
double canary_normal(uint64_t number) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 11 * i + 3;
  return noise_draw<double>(NoiseGenerator::secure, key, 1, 0, number / kNoiseGroup)
      .value[number % kNoiseGroup];
}

// A run of these steps, imitated with noise of `real` times the claimed deviation.
AuditRecord imitated(const privacy::Phase& phase, int64_t pairs, double real = 1) {
  std::vector<double> with, without;
  uint64_t number = 0;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    double yes = 0, no = 0;
    for (int64_t step = 0; step < phase.steps; ++step) {
      const double seen = real * phase.sigma * canary_normal(number);
      const double coin = std::ldexp(static_cast<double>(philox4x32(5, number++, 0).word[0]), -32);
      no += log_likelihood_ratio(seen, 1, phase.sigma, phase.q);
      yes += log_likelihood_ratio(seen + (coin < phase.q ? 1 : 0), 1, phase.sigma, phase.q);
    }
    with.push_back(yes);
    without.push_back(no);
  }
  AuditRecord record;
  judge_scores(with, without, {phase, kDelta}, 0.95, record);
  return record;
}

double sigma_of(double epsilon) {
  return privacy::calibrate_sigma(*privacy::make_accountant(privacy::AccountantKind::pld), epsilon,
                                  kDelta, 1, 1)
      .sigma;
}

TEST(AuditCanary, OneStepAtFullRateShowsNearlyAllOfItsEpsilon) {
  for (const auto& [epsilon, shown] : {std::pair{1.0, 0.7}, {4.0, 3.6}, {8.0, 7.5}}) {
    const AuditRecord found = imitated({.sigma = sigma_of(epsilon), .q = 1, .steps = 1}, 10000);
    EXPECT_GE(found.epsilon_low, shown) << epsilon;
    EXPECT_LE(found.epsilon_low, epsilon);
    EXPECT_EQ(found.test->conversion, "Gaussian DP: one step at q = 1");
  }
}

TEST(AuditCanary, HalfTheNoiseIsRefuted) {
  const AuditRecord found = imitated({.sigma = sigma_of(4), .q = 1, .steps = 1}, 10000, 0.5);
  EXPECT_GT(found.epsilon_low, 4);
}

TEST(AuditCanary, SampledStepsAreJudgedByTheAccountantsOwnCurve) {
  const privacy::Phase phase{.sigma = 1, .q = 0.5, .steps = 8};
  const double claimed = privacy::pld_epsilon({phase}, kDelta).epsilon;
  const AuditRecord found = imitated(phase, 4000);
  EXPECT_EQ(found.test->conversion, "the accountant's trade-off curve, inverted");
  EXPECT_GT(found.epsilon_low, 0.6 * claimed);
  EXPECT_LE(found.epsilon_low, claimed);
  EXPECT_GT(imitated(phase, 4000, 0.5).epsilon_low, claimed);
}

TEST(AuditCanary, ATradeOffIsConvexFallsAndIsTheGaussiansWhereItIsOne) {
  const TradeOff plain({.sigma = 1.3, .q = 1, .steps = 1}),
      sampled({.sigma = 1, .q = 0.2, .steps = 5});
  for (const double alpha : {0.01, 0.1, 0.4}) {
    EXPECT_NEAR(plain.false_negatives(alpha), normal_cdf(-normal_quantile(alpha) - 1 / 1.3), 1e-9);
    EXPECT_LT(sampled.false_negatives(alpha), 1 - alpha);
    EXPECT_GT(sampled.false_negatives(alpha), sampled.false_negatives(1.2 * alpha));
  }
  // Nearly full sampling comes near the Gaussian, from below.
  const TradeOff nearly({.sigma = 1.3, .q = 0.999, .steps = 1});
  EXPECT_LE(nearly.false_negatives(0.1), plain.false_negatives(0.1) + 2e-3);
  EXPECT_GE(nearly.false_negatives(0.1), plain.false_negatives(0.1) - 2e-2);
}

}  // namespace
}  // namespace veil::audit
