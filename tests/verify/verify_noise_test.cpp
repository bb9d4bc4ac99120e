// The statistics by which `veil verify` judges noise: they accept normals and refuse what classical
// mistakes make of them.
#include "verify/verify_noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/noise_values.h"

namespace veil {
namespace {

std::vector<double> normals(uint64_t step, int64_t count) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = i;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(noise_draw<double>(NoiseGenerator::secure, key, step, 0,
                                        static_cast<uint64_t>(i / kNoiseGroup))
                         .value[i % kNoiseGroup]);
  return values;
}

bool accepted(const NoiseLaw& law) {
  return std::abs(law.mean_z) <= kLargestZ && std::abs(law.variance_z) <= kLargestZ &&
         law.kolmogorov <= kLargestKolmogorov;
}

TEST(VerifyNoise, NormalsAreAccepted) {
  for (uint64_t step = 0; step < 20; ++step)
    EXPECT_TRUE(accepted(noise_law(normals(step, 5000)))) << step;
}

TEST(VerifyNoise, AnotherDeviationMeanOrShapeIsRefused) {
  std::vector<double> small = normals(1, 5000), moved = small, flat = small;
  for (double& value : small) value *= std::sqrt(1 / 1.5);
  for (double& value : moved) value += 0.1;
  for (double& value : flat) value = value > 0 ? 1 : -1;  // the right mean and variance
  EXPECT_FALSE(accepted(noise_law(small)));
  EXPECT_FALSE(accepted(noise_law(moved)));
  EXPECT_FALSE(accepted(noise_law(flat)));
}

TEST(VerifyNoise, SharedNoiseCorrelates) {
  const std::vector<double> one = normals(1, 4000), other = normals(2, 3000);
  EXPECT_LE(std::abs(correlation_z(one, other)), kLargestZ);
  std::vector<double> mixed = other;
  for (size_t i = 0; i < mixed.size(); ++i) mixed[i] = 0.2 * one[i] + other[i];
  EXPECT_GT(correlation_z(one, mixed), kLargestZ);
  EXPECT_GT(correlation_z(one, one), 50);
}

}  // namespace
}  // namespace veil
