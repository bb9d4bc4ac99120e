// The laws by which `veil audit mechanism` judges noise: they accept normals and refuse what
// mistakes make of them.
#include "audit/mechanism.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/noise_values.h"

namespace veil::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kElements = 6000;
constexpr double kFalseAlarm = 1e-6;

std::vector<std::vector<double>> three_steps() {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 3 * i + 9;
  std::vector<std::vector<double>> steps(3);
  for (uint64_t step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < kElements; ++i)
      steps[step].push_back(noise_draw<double>(NoiseGenerator::secure, key, step + 1, 0,
                                               static_cast<uint64_t>(i / kNoiseGroup))
                                .value[i % kNoiseGroup]);
  }
  return steps;
}

AuditRecord judged(const std::vector<std::vector<double>>& steps) {
  AuditRecord record;
  judge_noise(steps, {"step 1", "step 2", "step 3"},
              {{"first", {{0, 40}}},
               {"second", {{40, kElements - 40}}},
               {"rank 0's shard", {{0, kElements / 2}}},
               {"rank 1's shard", {{kElements / 2, kElements / 2}}}},
              kFalseAlarm, record);
  return record;
}

TEST(AuditNoise, NormalsKeepEveryLaw) {
  const AuditRecord record = judged(three_steps());
  EXPECT_THAT(record.failures, IsEmpty());
  EXPECT_EQ(record.laws.size(), 5u);
}

TEST(AuditNoise, AnotherDeviationIsFoundInTheParameterThatHasIt) {
  auto steps = three_steps();
  for (int64_t i = 0; i < 40; ++i) steps[1][static_cast<size_t>(i)] *= 0.2;
  const AuditRecord record = judged(steps);
  ASSERT_FALSE(record.failures.empty());
  EXPECT_THAT(record.failures[0], HasSubstr("deviation of the noise"));
  EXPECT_THAT(record.failures[0], HasSubstr("in first, step 2"));
}

TEST(AuditNoise, TenPercentLessNoiseAMeanAndNothingAtAllAreRefused) {
  for (const auto& change : std::vector<std::function<double(double)>>{
           [](double z) { return 0.9 * z; }, [](double z) { return z + 0.2; },
           [](double) { return 0.0; }, [](double) { return NAN; },
           [](double z) { return z > 0 ? 1.0 : -1.0; }}) {
    auto steps = three_steps();
    for (auto& step : steps) {
      for (double& value : step) value = change(value);
    }
    EXPECT_FALSE(judged(steps).failures.empty());
  }
}

TEST(AuditNoise, NoiseThatStepsOrShardsShareIsRefused) {
  auto steps = three_steps();
  steps[2] = steps[0];
  EXPECT_THAT(judged(steps).failures, ::testing::Contains(HasSubstr("between step 1 and step 3")));
  steps = three_steps();
  for (auto& step : steps)
    std::copy(step.begin(), step.begin() + kElements / 2, step.begin() + kElements / 2);
  EXPECT_THAT(judged(steps).failures, ::testing::Contains(HasSubstr("3000 elements apart")));
}

}  // namespace
}  // namespace veil::audit
