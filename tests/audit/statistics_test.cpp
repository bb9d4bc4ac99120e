// The audits' statistics against published values, and their limits against normals of a fixed key.
#include "audit/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/noise_values.h"

namespace veil::audit {
namespace {

std::vector<double> audit_normals(uint64_t step, int64_t count) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 7 * i + 1;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(noise_draw<double>(NoiseGenerator::secure, key, step, 0,
                                        static_cast<uint64_t>(i / kNoiseGroup))
                         .value[i % kNoiseGroup]);
  return values;
}

TEST(AuditStatistics, QuantilesAreTheTables) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-6);
  EXPECT_NEAR(normal_quantile(1e-9), -5.997807, 1e-5);
  EXPECT_NEAR(chi_square_quantile(10, 0.95), 18.30704, 1e-4);
  EXPECT_NEAR(chi_square_quantile(1, 0.05), 0.003932, 1e-6);
  EXPECT_NEAR(chi_square_quantile(100, 0.99), 135.80672, 1e-4);
  // far from small: n + z sqrt(2 n) + 2 (z^2 - 1) / 3, by Cornish and Fisher
  const double n = 1e6, z = normal_quantile(0.999);
  EXPECT_NEAR(chi_square_quantile(n, 0.999), n + z * std::sqrt(2 * n) + 2 * (z * z - 1) / 3, 0.02);
}

TEST(AuditStatistics, ClopperAndPearsonsIntervalsAreExact) {
  const Interval half = clopper_pearson(5, 10, 0.05);
  EXPECT_NEAR(half.low, 0.187086, 1e-6);
  EXPECT_NEAR(half.high, 0.812914, 1e-6);
  // none of n: 1 - alpha^(1/n)
  EXPECT_NEAR(clopper_pearson_upper(0, 1000, 0.01), 1 - std::pow(0.01, 1e-3), 1e-12);
  EXPECT_EQ(clopper_pearson_upper(7, 7, 0.01), 1);
  EXPECT_NEAR(beta_cdf(6, 5, 0.812914), 0.975, 1e-6);
}

TEST(AuditStatistics, TheDeviationOfNormalsLiesInItsIntervalAndHalfOfItDoesNot) {
  const std::vector<double> values = audit_normals(1, 50000);
  double squares = 0;
  for (const double value : values) squares += value * value;
  const Interval found = deviation_interval(squares, 50000, 1e-6);
  EXPECT_LT(found.low, 1);
  EXPECT_GT(found.high, 1);
  EXPECT_LT(found.high, 1.02);
  EXPECT_LT(deviation_interval(squares / 4, 50000, 1e-6).high, 0.51);
}

// The Chernoff bounds lie above what a normal of the same variance would allow, and not far.
TEST(AuditStatistics, LimitsOfProductsHoldAndAreTight) {
  for (const int64_t n : {20, 1000, 100000}) {
    const double normal = -normal_quantile(0.5e-6) * std::sqrt(static_cast<double>(n));
    EXPECT_GT(product_limit(n, 1e-6), normal);
    EXPECT_GT(lagged_limit(n, 1e-6), normal);
    if (n >= 1000) {
      EXPECT_LT(product_limit(n, 1e-6), 1.2 * normal);
      EXPECT_LT(lagged_limit(n, 1e-6), 1.2 * normal);
    }
  }
  // Each of 200 products exceeds its 10 % limit with a tenth's chance at most: 45 or more of them
  // would be rarer than 1e-5.
  int exceeded = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::vector<double> a = audit_normals(2 * i, 50), b = audit_normals(2 * i + 1, 50);
    double sum = 0;
    for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    exceeded += std::abs(sum) > product_limit(50, 0.1);
  }
  EXPECT_LT(exceeded, 45);
  EXPECT_GT(exceeded, 0);
}

TEST(AuditStatistics, ACopiedBlockIsSeenAtItsDistance) {
  std::vector<double> values = audit_normals(3, 20000);
  const auto worst = [&] {
    const std::vector<double> sums = autocorrelation(values);
    size_t at = 1;
    for (size_t lag = 1; lag < sums.size(); ++lag) {
      if (std::abs(sums[lag]) > std::abs(sums[at])) at = lag;
    }
    return std::pair{at, std::abs(sums[at])};
  };
  const double limit = lagged_limit(20000, 1e-6 / 20000);
  EXPECT_LT(worst().second, limit);
  for (size_t i = 0; i < 2000; ++i) values[11003 + i] = values[500 + i];
  EXPECT_EQ(worst().first, 10503u);
  EXPECT_GT(worst().second, limit);
}

TEST(AuditStatistics, KolmogorovsLimitAcceptsNormalsAndRefusesAnotherShape) {
  std::vector<double> values = audit_normals(4, 3000), coarse = values;
  for (double& value : coarse) value = std::round(value * 4) / 4;
  EXPECT_LE(kolmogorov_distance(values), kolmogorov_limit(3000, 1e-6));
  EXPECT_GT(kolmogorov_distance(coarse), kolmogorov_limit(3000, 1e-6));
}

}  // namespace
}  // namespace veil::audit
