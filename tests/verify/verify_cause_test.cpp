// Each classical mistake leaves its own pattern of differences, by which `veil verify` names it.
#include "verify/verify_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace veil {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two ranks with two samples each; a weight, a bias, a table and a tied table. Nothing differs.
VerifyDifferences right() {
  VerifyDifferences found;
  found.names = {"weight", "bias", "table", "tied"};
  found.kinds = {VerifyParamKind::weight, VerifyParamKind::bias, VerifyParamKind::table,
                 VerifyParamKind::tied_table};
  found.world = 2;
  found.expected_squared = {{1, 2, 3, 4}, {0.1, 0.2, 0.3, 0.4}, {2, 1, 4, 3}, {1, 1, 2, 2}};
  found.squared = found.expected_squared;
  found.expected_coefficients = {{0.5, 0.6, 0.7, 0}};
  found.coefficients = found.expected_coefficients;
  found.padded = {false, false, true, false};
  found.sums = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  found.difference_after_ratio = found.difference_with_uncounted = 1;
  found.tolerance = 1e-5;
  return found;
}

TEST(VerifyCause, NothingIsNamedWhereNothingDiffers) {
  VerifyDifferences found = right();
  EXPECT_FALSE(find_failure(found));
  found.squared[0][1] *= 1 + 1e-6;
  found.sums[1][2] = 9e-6;
  EXPECT_FALSE(find_failure(found));
}

TEST(VerifyCause, ANormsParameterSampleAndRankAreNamed) {
  VerifyDifferences found = right();
  found.squared[1][3] = 0.9;
  const auto failure = find_failure(found);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->what, "norm");
  EXPECT_EQ(failure->parameter, "bias");
  EXPECT_EQ(failure->sample, 3);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->cause, StartsWith("bias norm"));
}

TEST(VerifyCause, NormsSummedOverRanksAreAReduction) {
  VerifyDifferences found = right();
  for (size_t p = 0; p < found.squared.size(); ++p) {
    for (size_t i = 0; i < 4; ++i)
      found.squared[p][i] = found.expected_squared[p][i % 2] + found.expected_squared[p][i % 2 + 2];
  }
  EXPECT_THAT(find_failure(found)->cause,
              StartsWith("reduction: squared norms are summed over the ranks"));
}

TEST(VerifyCause, TablesAndPaddingAreToldApart) {
  VerifyDifferences found = right();
  found.squared[3][0] = 0.4;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("tied weight"));
  found = right();
  found.squared[2][0] = 0.4;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("repeated tokens"));
  found = right();
  found.squared[0][2] = found.squared[1][2] = 7;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("padding"));
  found = right();
  found.squared[0] = {5, 5, 5, 5};
  EXPECT_THAT(find_failure(found)->cause, HasSubstr("rule"));
}

TEST(VerifyCause, ANormThatIsNoNumberFails) {
  VerifyDifferences found = right();
  found.squared[0][0] = std::numeric_limits<double>::quiet_NaN();
  const auto failure = find_failure(found);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->cause, HasSubstr("not finite"));
  EXPECT_EQ(failure->parameter, "weight");
}

TEST(VerifyCause, CoefficientsOfPaddingAndOfOthers) {
  VerifyDifferences found = right();
  found.coefficients[0][3] = 0.3;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("padding"));
  found = right();
  found.coefficients[0][0] = 0.3;
  const auto failure = find_failure(found);
  EXPECT_THAT(failure->cause, StartsWith("the clip function"));
  EXPECT_EQ(failure->sample, 0);
}

TEST(VerifyCause, SumsAreComparedRankByRank) {
  VerifyDifferences found = right();
  found.sums = {{0, 0, 0, 0}, {0, 0.2, 0.1, 0}};
  auto failure = find_failure(found);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->what, "gradient");
  EXPECT_EQ(failure->parameter, "bias");
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->sample, -1);
  EXPECT_THAT(failure->cause, StartsWith("reduction: ranks hold different sums"));
  found.sums = {{0.2, 0.2, 0.2, 0.2}, {0.2, 0.2, 0.2, 0.2}};
  found.ratio = 2;
  found.difference_after_ratio = 1e-7;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("reduction: all sums are 2 times"));
  found.difference_with_uncounted = 1e-7;
  EXPECT_THAT(find_failure(found)->cause, StartsWith("padding"));
}

}  // namespace
}  // namespace veil
