// What it costs to cut Poisson draws to a maximum: the tail, its share of delta, and the epsilon
// that is left.
#include "privacy/batch_maximum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "privacy/accountant.h"
#include "privacy/numerics.h"
#include "privacy/pld.h"

namespace veil::privacy {
namespace {

// ln Pr[Bin(n, q) > m] by mpmath with 40 digits; q is the double.
struct TailCase {
  int64_t trials;
  double q;
  int64_t most;
  double log_tail;
};
constexpr TailCase kTails[] = {{1000, 0.1, 150, -15.097646401177718434},
                               {60'000, 256 / 60'000.0, 400, -38.049974854853568934},
                               {1'000'000, 1e-3, 1300, -44.433362498794966262},
                               {1'000'000'000, 1e-5, 11'000, -51.69240237553532277},
                               {100, 0.3, 99, -120.39728043259360296},
                               {5, 0.9, 4, -0.52680257828913138278}};

TEST(BatchMaximum, TheTailIsTheExactOneAndNeverBelowIt) {
  for (const TailCase& known : kTails) {
    const double tail = log_binomial_tail(known.trials, known.q, known.most);
    EXPECT_GE(tail, known.log_tail) << known.trials;
    EXPECT_LE(tail, known.log_tail + 1.1e-9) << known.trials;
  }
}

// Pascal's triangle in long double: a probability's error is below n 2^-63.
TEST(BatchMaximum, TheTailIsTheSumOfAllItsTerms) {
  constexpr int64_t kTrials = 40;
  for (const double q : {1e-3, 0.05, 0.3, 0.5, 0.97}) {
    std::vector<long double> chance(kTrials + 1);
    chance[0] = 1;
    for (int64_t trial = 0; trial < kTrials; ++trial) {
      for (int64_t k = trial + 1; k >= 0; --k) {
        const auto at = static_cast<size_t>(k);
        chance[at] = chance[at] * (1 - static_cast<long double>(q)) +
                     (k > 0 ? chance[at - 1] * static_cast<long double>(q) : 0);
      }
    }
    long double sum = 0;
    for (int64_t most = kTrials - 1; most >= 0; --most) {
      sum += chance[static_cast<size_t>(most + 1)];
      const double tail = log_binomial_tail(kTrials, q, most);
      // Terms that are rounded can add up to more than 1, which no probability is.
      const auto expected = static_cast<double>(std::log(std::min(sum, 1.0L)));
      EXPECT_GE(tail, expected) << q << " " << most;
      if (static_cast<double>(most + 1) > q * kTrials) {
        EXPECT_LE(tail, expected + 1.1e-9) << q << " " << most;
      }
    }
  }
}

// Two deviations above the mean of 2^53 trials, where a sum to the last bit has 10^9 terms. The tail
// is the normal one up to 1/sqrt(n) = 1e-8 of it, and a geometric series in place of all terms is
// density / 2.
TEST(BatchMaximum, OfVeryManyTrialsTheTailIsBoundedFromAbove) {
  const int64_t trials = int64_t{1} << 53;
  const double deviation = 0.5 * std::sqrt(static_cast<double>(trials));
  const double tail = std::exp(
      log_binomial_tail(trials, 0.5, trials / 2 + static_cast<int64_t>(2 * deviation) - 1));
  const double exact = 0.5 * std::erfc(std::sqrt(2.0)),
               density = std::exp(-2.0) / std::sqrt(2 * M_PI);
  EXPECT_GE(tail, exact * (1 - 1e-6));
  EXPECT_LE(tail, density / 2 * (1 + 1e-6));
}

TEST(BatchMaximum, NoDrawIsLargerThanAllUnitsAndTheLargerNeighbourIsCounted) {
  EXPECT_EQ(log_binomial_tail(100, 0.5, 100), -kInfinity);
  EXPECT_EQ(log_binomial_tail(100, 0, 3), -kInfinity);
  EXPECT_EQ(log_binomial_tail(100, 1, 99), 0);
  EXPECT_EQ(log_binomial_tail(100, 0.5, 20), 0);
  // Of 100 units none is cut; of their neighbour's 101 all are drawn with probability q^101.
  EXPECT_EQ(overflow_chance(100, 0.5, 101), 0);
  EXPECT_NEAR(overflow_chance(100, 0.5, 100) / std::exp2(-101), 1, 2e-9);
  EXPECT_GT(overflow_chance(1000, 0.1, 150), std::exp(kTails[0].log_tail));
}

TEST(BatchMaximum, CutsAddStepsTimesOnePlusEToTheEpsilonTimesTheTail) {
  const std::vector<Phase> run{{.sigma = 1, .q = 0.1, .steps = 300, .overflow = 1e-12},
                               {.sigma = 2, .q = 0.2, .steps = 50, .overflow = 3e-11},
                               {.sigma = 2, .q = 0.2, .steps = 70}};
  const double tail = 300 * 1e-12 + 50 * 3e-11;
  for (const double epsilon : {0.0, 1.5, 12.0})
    EXPECT_DOUBLE_EQ(overflow_delta(run, epsilon), (1 + std::exp(epsilon)) * tail);
  EXPECT_EQ(overflow_delta({{.sigma = 1, .q = 0.1, .steps = 300}}, 3), 0);
}

// For plain Gaussians delta(epsilon) is known exactly: what is spent solves
// delta(epsilon) + cuts(epsilon) = delta.
TEST(BatchMaximum, WhatIsSpentPaysForTheCutsAndForNoMore) {
  for (const double overflow : {1e-16, 1e-13, 1e-11}) {
    const std::vector<Phase> run{{.sigma = 20, .q = 1, .steps = 400, .overflow = overflow}};
    const double delta = 1e-6;
    const Spent spent = make_accountant(AccountantKind::pld)->epsilon(run, delta);
    const auto whole = [&](double epsilon) {
      return gaussian_delta(1, epsilon) + overflow_delta(run, epsilon);
    };
    EXPECT_LE(whole(spent.epsilon), delta * (1 + 1e-9)) << overflow;
    EXPECT_GT(whole(spent.epsilon - 1e-5), delta) << overflow;
    EXPECT_GE(spent.epsilon, gaussian_epsilon(1, delta));
    EXPECT_LE(spent.epsilon - *spent.error, gaussian_epsilon(1, delta) + 1e-12);
  }
}

TEST(BatchMaximum, EveryAccountantPaysForCuts) {
  for (const AccountantKind kind :
       {AccountantKind::pld, AccountantKind::rdp, AccountantKind::gdp}) {
    const auto accountant = make_accountant(kind);
    const double without = accountant->epsilon({{1.2, 0.05, 200}}, 1e-5).epsilon,
                 with = accountant->epsilon({{1.2, 0.05, 200, 1e-10}}, 1e-5).epsilon,
                 parts = accountant
                             ->epsilon({{1.2, 0.05, 80, 2e-10}, {1.2, 0.05, 120, 1e-10 / 3}}, 1e-5)
                             .epsilon;
    EXPECT_GT(with, without) << name_of(kind);
    EXPECT_NEAR(parts, with, 1e-6) << name_of(kind) << ": tails of events add up";
    EXPECT_EQ(accountant->epsilon({{1.2, 0.05, 200, 1e-8}}, 1e-5).epsilon, kInfinity)
        << name_of(kind) << ": cuts alone cost more than delta";
  }
}

TEST(BatchMaximum, TheSmallestMaximumCostsNoMoreThanAllowedAndAnySmallerOneDoes) {
  for (const int64_t multiple : {1, 7, 64}) {
    for (const double epsilon : {0.5, 8.0, 60.0}) {
      const double allowed = 1e-9, q = 256 / 60'000.0;
      const int64_t most = smallest_maximum(60'000, q, 5000, epsilon, allowed, multiple);
      const auto cost = [&](int64_t maximum) {
        return overflow_delta(
            {{.sigma = 1, .q = q, .steps = 5000, .overflow = overflow_chance(60'000, q, maximum)}},
            epsilon);
      };
      EXPECT_EQ(most % multiple, 0);
      EXPECT_LE(cost(most), allowed * (1 + 1e-12));
      EXPECT_GT(cost(most - multiple), allowed);
    }
  }
  // where every unit is drawn
  EXPECT_EQ(smallest_maximum(10, 1, 5, 1, 1e-9, 4), 12);
  EXPECT_EQ(smallest_maximum(11, 1, 5, 1, 1e-9, 4), 12);
}

}  // namespace
}  // namespace veil::privacy
