// What holds of every accountant, whatever the numbers.
#include "privacy/accountant.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "privacy/numerics.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

namespace veil::privacy {
namespace {

class EveryAccountant : public ::testing::TestWithParam<AccountantKind> {
 protected:
  double epsilon(double sigma, double q, int64_t steps, double delta = 1e-6) const {
    return make_accountant(GetParam())->epsilon({{sigma, q, steps}}, delta).epsilon;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryAccountant,
                         ::testing::Values(AccountantKind::pld, AccountantKind::rdp,
                                           AccountantKind::gdp),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(EveryAccountant, EpsilonGrowsWithStepsAndRateAndFallsWithNoiseAndDelta) {
  for (const double sigma : {0.6, 1.0, 3.0}) {
    for (const double q : {0.001, 0.03, 0.5}) {
      for (const int64_t steps : {10, 1000}) {
        SCOPED_TRACE(fmt::format("sigma {} q {} steps {}", sigma, q, steps));
        const double here = epsilon(sigma, q, steps);
        EXPECT_GE(epsilon(sigma, q, 2 * steps), here);
        EXPECT_GE(epsilon(sigma, 1.5 * q, steps), here);
        EXPECT_LE(epsilon(1.3 * sigma, q, steps), here);
        EXPECT_LE(epsilon(sigma, q, steps, 1e-4), here);
        EXPECT_LT(epsilon(1.3 * sigma, q, 1000), epsilon(sigma, q, 4000));
      }
    }
  }
}

TEST_P(EveryAccountant, TwoPhasesOfOneSettingAreOnePhaseOfAllTheirSteps) {
  const auto accountant = make_accountant(GetParam());
  const double whole = accountant->epsilon({{0.9, 0.01, 1500}}, 1e-6).epsilon;
  EXPECT_EQ(accountant->epsilon({{0.9, 0.01, 500}, {0.9, 0.01, 1000}}, 1e-6).epsilon, whole);
  // Settings that differ by a hair are composed as two.
  const double composed =
      accountant->epsilon({{0.9, 0.01, 500}, {0.9 + 1e-12, 0.01, 1000}}, 1e-6).epsilon;
  EXPECT_NEAR(composed, whole, 2e-4);
}

TEST_P(EveryAccountant, PhasesThatTouchNoRecordCostNothing) {
  const auto accountant = make_accountant(GetParam());
  const double alone = accountant->epsilon({{1.1, 0.02, 300}}, 1e-5).epsilon;
  EXPECT_EQ(accountant->epsilon({{1.1, 0.02, 300}, {0.0, 0.0, 50}, {0.0, 0.5, 0}}, 1e-5).epsilon,
            alone);
  EXPECT_EQ(accountant->epsilon({}, 1e-5).epsilon, 0);
}

TEST_P(EveryAccountant, OneStepWithoutNoiseIsInfinite) {
  const auto accountant = make_accountant(GetParam());
  EXPECT_EQ(accountant->epsilon({{1.0, 0.01, 100}, {0.0, 0.01, 1}}, 1e-5).epsilon, HUGE_VAL);
}

TEST_P(EveryAccountant, BadInputIsAUserError) {
  const auto accountant = make_accountant(GetParam());
  for (const double delta : {0.0, 1.0, -1e-5, 2.0, std::nan("")})
    EXPECT_THROW(accountant->epsilon({{1, 0.1, 10}}, delta), UserError) << delta;
  for (const Phase& phase :
       {Phase{-1, 0.1, 10}, Phase{1, 1.1, 10}, Phase{1, -0.1, 10}, Phase{1, 0.1, -1},
        Phase{std::nan(""), 0.1, 1}, Phase{1, std::nan(""), 1}})
    EXPECT_THROW(accountant->epsilon({phase}, 1e-5), UserError)
        << phase.sigma << " " << phase.q << " " << phase.steps;
}

TEST(Pld, ItsBoundsHoldTheClosedFormOfOneStep) {
  // delta(epsilon) of a single sampled step, remove: q Phi-terms by the cut where the loss is
  // epsilon.
  for (const double sigma : {0.5, 1.0, 2.0}) {
    for (const double q : {0.001, 0.1, 0.7}) {
      for (const double epsilon : {0.1, 0.5, 1.5}) {
        SCOPED_TRACE(fmt::format("sigma {} q {} epsilon {}", sigma, q, epsilon));
        const double cut = sigma * sigma * std::log((std::exp(epsilon) - 1 + q) / q) + 0.5;
        const double with = std::exp(log_normal_cdf((1 - cut) / sigma)),
                     without = std::exp(log_normal_cdf(-cut / sigma));
        const double exact = q * with + (1 - q) * without - std::exp(epsilon) * without;
        const Bounds bounds = pld_delta_bounds({{sigma, q, 1}}, epsilon);
        EXPECT_LE(bounds.lower, exact * (1 + 1e-9));
        EXPECT_GE(bounds.upper, exact * (1 - 1e-9));
        if (exact > 1e-20) {
          EXPECT_LE(bounds.upper - bounds.lower, 0.05 * exact);
        }
      }
    }
  }
}

TEST(Pld, AMixtureThatIsNearlyAPlainGaussianComesOutAsOne) {
  // q = 1 in two settings and one sampled step with noise that hides it: composed numerically,
  // known exactly.
  const double mu = std::sqrt(30 / 9.0 + 20 / 16.0);
  const Bounds bounds = pld_epsilon_bounds({{3, 1, 30}, {4, 1, 20}, {1e4, 1e-3, 1}}, 1e-6);
  const double exact = gaussian_epsilon(mu, 1e-6);
  EXPECT_LE(bounds.lower, exact + 1e-6);
  EXPECT_GE(bounds.upper, exact - 1e-9);
  EXPECT_LE(bounds.upper - bounds.lower, 1e-3 * exact);
}

TEST(Pld, DeltaOfEpsilonLeadsBackToDelta) {
  for (const Phase& phase :
       {Phase{1.0, 0.01, 1000}, Phase{0.6, 0.001, 2000}, Phase{4.0, 0.2, 500}}) {
    for (const double delta : {1e-4, 1e-7, 1e-12}) {
      SCOPED_TRACE(fmt::format("sigma {} q {} delta {}", phase.sigma, phase.q, delta));
      const Bounds epsilon = pld_epsilon_bounds({phase}, delta);
      EXPECT_LE(pld_delta_bounds({phase}, epsilon.upper).lower, delta);
      EXPECT_GE(pld_delta_bounds({phase}, epsilon.lower).upper, delta);
      EXPECT_NEAR(pld_delta_bounds({phase}, epsilon.upper).upper / delta, 1, 0.02);
    }
  }
}

TEST(Pld, AFinerGridNarrowsTheBoundsAroundTheSameValue) {
  const std::vector<Phase> run{{1.0, 0.01, 1000}};
  const Bounds coarse = pld_epsilon_bounds(run, 1e-5, 1e-3),
               fine = pld_epsilon_bounds(run, 1e-5, 1e-6);
  EXPECT_LE(coarse.lower, fine.lower);
  EXPECT_GE(coarse.upper, fine.upper);
  EXPECT_LT(fine.upper - fine.lower, 0.05 * (coarse.upper - coarse.lower));
}

TEST(Pld, ItIsNeverAboveRdpNorBelowZeroAndItsBoundsAreInOrder) {
  for (const double sigma : {0.15, 0.5, 1.0, 8.0}) {
    for (const double q : {1e-5, 1e-3, 0.1, 0.9}) {
      for (const int64_t steps : {1, 30, 3000}) {
        for (const double delta : {1e-2, 1e-6, 1e-13}) {
          SCOPED_TRACE(fmt::format("sigma {} q {} steps {} delta {}", sigma, q, steps, delta));
          const Bounds bounds = pld_epsilon_bounds({{sigma, q, steps}}, delta, 1e-4);
          const double rdp = rdp_epsilon({{sigma, q, steps}}, delta).epsilon;
          EXPECT_GE(bounds.lower, 0);
          EXPECT_LE(bounds.lower, bounds.upper + 1e-6 * std::max(1.0, bounds.upper));
          EXPECT_LE(bounds.lower, rdp * (1 + 1e-9));
          EXPECT_LE(bounds.upper, rdp + 5e-3 * std::max(1.0, rdp));
        }
      }
    }
  }
}

TEST(Pld, AHundredThousandStepsTakeLessThanTwoSeconds) {
  const auto before = std::chrono::steady_clock::now();
  const Spent spent = pld_epsilon({{0.8, 0.001, 100000}}, 1e-7);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  EXPECT_GT(spent.epsilon, 3);
#ifdef __SANITIZE_ADDRESS__
  EXPECT_LT(seconds, 60);
#else
  EXPECT_LT(seconds, 2);
#endif
}

TEST(Calibrate, LessNoiseThanItsSigmaBreaksTheBudget) {
  const auto accountant = make_accountant(AccountantKind::pld);
  const Calibration found = calibrate_sigma(*accountant, 2.0, 1e-6, 0.02, 500);
  EXPECT_LE(found.spent.epsilon, 2.0);
  EXPECT_GT(accountant->epsilon({{found.sigma - 2e-4, 0.02, 500}}, 1e-6).epsilon, 2.0);
}

TEST(Calibrate, AnEpsilonOutOfReachIsAUserError) {
  // The orders of RDP leave a floor that no noise takes away.
  EXPECT_THROW(calibrate_sigma(*make_accountant(AccountantKind::rdp), 0.01, 1e-10, 0.5, 100),
               UserError);
  EXPECT_THROW(calibrate_sigma(*make_accountant(AccountantKind::pld), 1e-9, 1e-10, 1, 1000000),
               UserError);
  EXPECT_THROW(calibrate_sigma(*make_accountant(AccountantKind::pld), 0, 1e-5, 0.5, 100),
               UserError);
}

TEST(Calibrate, ARunThatTouchesNoRecordNeedsNoNoise) {
  const auto accountant = make_accountant(AccountantKind::pld);
  EXPECT_EQ(calibrate_sigma(*accountant, 1, 1e-5, 0, 100).sigma, 0);
  EXPECT_EQ(calibrate_sigma(*accountant, 1, 1e-5, 0.1, 0).sigma, 0);
}

}  // namespace
}  // namespace veil::privacy
