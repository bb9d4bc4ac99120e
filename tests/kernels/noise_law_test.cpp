// The law of the noise that privacy rests on: its distribution, what its last bits tell, and that no
// two numbers are related.
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/test_noise.h"

namespace veil {
namespace {

// Every bound below is five standard errors of the statistic over kNormals independent normals,
// unless it says otherwise.
constexpr int64_t kNormals = 3'000'000;

TEST(NoiseLaw, MomentsAreThoseOfTheNormal) {
  for (const NoiseGenerator generator : kGenerators) {
    const std::vector<double> z = values_of(normals(source_of(generator), kNormals));
    double sum[5] = {};
    for (const double value : z) {
      double power = 1;
      for (int k = 1; k <= 4; ++k) sum[k] += power *= value;
    }
    const double n = static_cast<double>(kNormals), error = 5 / std::sqrt(n);
    EXPECT_LT(std::abs(sum[1] / n), error) << name_of(generator);
    EXPECT_LT(std::abs(sum[2] / n - 1), error * std::sqrt(2.0)) << name_of(generator);
    EXPECT_LT(std::abs(sum[3] / n), error * std::sqrt(15.0)) << name_of(generator);
    EXPECT_LT(std::abs(sum[4] / n - 3), error * std::sqrt(96.0)) << name_of(generator);
  }
}

// Kolmogorov and Smirnov: sqrt(n) D exceeds 2.2 once in 8,000 times.
TEST(NoiseLaw, TheDistributionFunctionIsTheNormals) {
  for (const NoiseGenerator generator : kGenerators) {
    std::vector<double> z = values_of(normals(source_of(generator), kNormals));
    std::sort(z.begin(), z.end());
    double distance = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      const double expected = 0.5 * std::erfc(-z[i] / std::sqrt(2.0)),
                   n = static_cast<double>(z.size());
      distance = std::max({distance, expected - static_cast<double>(i) / n,
                           static_cast<double>(i + 1) / n - expected});
    }
    EXPECT_LT(distance * std::sqrt(static_cast<double>(z.size())), 2.2) << name_of(generator);
  }
}

// Beyond 4 and 5 deviations: 2 Phi(-4) = 6.334e-5 and 2 Phi(-5) = 5.733e-7, so 1520 and 13.8 of 24
// million.
TEST(NoiseLaw, TheTailsHaveTheirShare) {
  for (const NoiseGenerator generator : kGenerators) {
    const NoiseSource source = source_of(generator);
    int64_t beyond_four = 0, beyond_five = 0, count = 0;
    for (uint32_t parameter = 0; parameter < 8; ++parameter) {
      const Tensor z = normals(source, kNormals, at::kFloat, 3, parameter);
      const float* at = z.data_ptr<float>();
      for (int64_t i = 0; i < kNormals; ++i) {
        beyond_four += std::abs(at[i]) > 4;
        beyond_five += std::abs(at[i]) > 5;
      }
      count += kNormals;
    }
    const double four = 6.334e-5 * static_cast<double>(count),
                 five = 5.733e-7 * static_cast<double>(count);
    EXPECT_NEAR(static_cast<double>(beyond_four), four, 5 * std::sqrt(four)) << name_of(generator);
    EXPECT_NEAR(static_cast<double>(beyond_five), five, 4 * std::sqrt(five)) << name_of(generator);
    EXPECT_GT(beyond_five, 0) << name_of(generator);
  }
}

// fp32 against the formula in fp64, from the same words.
TEST(NoiseLaw, Fp32IsTheFormulaRoundedToAFewUnits) {
  const double turn = 2 * std::acos(-1.0) / 4294967296.0;
  for (const NoiseGenerator generator : {NoiseGenerator::secure, NoiseGenerator::philox}) {
    const ChaChaKey key = source_of(generator).key;
    for (uint64_t group = 0; group < 40'000; ++group) {
      const ChaChaBlock block = noise_words(generator, key, 0, 0, group);
      if (noise_needs_further_words(block)) continue;
      const NoiseGroup<float> made = noise_draw<float>(generator, key, 0, 0, group);
      for (int k = 0; k < kNoiseGroup; ++k) {
        const double r = radius_of<double>(block.word[k / 2 * 2]);
        const double angle = turn * static_cast<double>(block.word[k / 2 * 2 + 1]);
        const double exact = r * (k % 2 ? std::sin(angle) : std::cos(angle));
        // The fp64 angle is rounded too: to 2^-53 of a turn or less.
        ASSERT_NEAR(made.value[k], exact, 4 * 1.2e-7 * std::abs(exact) + 1e-14)
            << name_of(generator) << " group " << group;
      }
    }
  }
}

// In fp64 a pair has 64 + 64 bits of which the upper ones are those of fp32.
TEST(NoiseLaw, Fp64RefinesFp32) {
  for (const NoiseGenerator generator : {NoiseGenerator::secure, NoiseGenerator::philox}) {
    const Tensor fine = normals(source_of(generator), 600'000).view({-1, 2});
    const Tensor coarse =
        normals(source_of(generator), 600'000, at::kFloat).to(at::kDouble).view({-1, 2});
    const Tensor r = (fine * fine).sum(1).sqrt();
    // The radius moves by at most 2^-33 / (u r), where u >= 2^-16 and 1 - u >= 2^-16 (and by less
    // where there are further bits), the angle by 2^-32 of a turn; then fp32 rounds.
    const Tensor u = (r * r * -0.5).exp();
    const Tensor allowed = 1.2e-10 / (u.clamp_min(1.5e-5) * r) + (1.5e-9 + 5e-7) * r;
    const Tensor moved = ((fine - coarse) * (fine - coarse)).sum(1).sqrt();
    EXPECT_LT((moved / allowed).max().item<double>(), 1) << name_of(generator);
    EXPECT_GT((moved / r).max().item<double>(), 0);
  }
}

// The share of pairs whose radius and angle lie on a grid of 2^-32, as 32 random bits leave them.
// An attacker who subtracts the right sum sees all on the grid, with the wrong sum few.
double share_on_the_grid(const Tensor& pairs) {
  const double full = 4294967296.0, two_pi = 2 * std::acos(-1.0);
  const double* z = pairs.data_ptr<double>();
  int64_t on = 0, count = 0;
  for (int64_t i = 0; i + 1 < pairs.numel(); i += 2) {
    const double u = std::exp(-(z[i] * z[i] + z[i + 1] * z[i + 1]) / 2) * full;
    // fp64 resolves u's grid only if u's own rounding, some 2^-50 full, is far below it.
    const double turn = (std::atan2(z[i + 1], z[i]) / two_pi + 1) * full;
    ++count;
    on += std::abs(u - std::floor(u) - 0.5) < 0.01 && std::abs(turn - std::round(turn)) < 0.01;
  }
  return static_cast<double>(on) / static_cast<double>(count);
}

// By chance 0.02^2 = 1 in 2500 pairs; 200,000 pairs have 80 +- 9.
TEST(NoiseLaw, Fp64PairsLieOnNoGridOfThirtyTwoBits) {
  for (const NoiseGenerator generator : kGenerators) {
    const Tensor released = at::full({400'000}, 0.3, at::kDouble);
    add_noise(released, NoiseKnobs{3, 1}, source_of(generator), 2, 0);
    EXPECT_LT(share_on_the_grid(released - 0.3), (80 + 5 * 9) / 200'000.0) << name_of(generator);
  }
}

// As often as 32 uniform bits repeat themselves: 2^22 of them about 2048 times.
TEST(NoiseLaw, RadiiOfFourMillionPairsRepeatAsChanceHasIt) {
  for (const NoiseGenerator generator : kGenerators) {
    const NoiseSource source = source_of(generator);
    std::vector<uint32_t> words;
    uint32_t seen_one = 0, seen_zero = 0;
    for (uint64_t group = 0; words.size() < (1u << 22); ++group) {
      const ChaChaBlock block = noise_words(generator, source.key, 5, 6, group);
      for (int pair = 0; pair < kNoiseGroup / 2; ++pair) words.push_back(block.word[2 * pair]);
    }
    for (const uint32_t value : words) {
      seen_one |= value;
      seen_zero |= ~value;
    }
    EXPECT_EQ(seen_one, kLastWord) << name_of(generator);
    EXPECT_EQ(seen_zero, kLastWord) << name_of(generator);
    std::sort(words.begin(), words.end());
    int64_t repeats = 0;
    for (size_t i = 1; i < words.size(); ++i) repeats += words[i] == words[i - 1];
    EXPECT_NEAR(static_cast<double>(repeats), 2048, 5 * std::sqrt(2048.0)) << name_of(generator);
  }
}

// fp32 numbers next to `value`, from 6 below to 6 above.
std::vector<float> neighbours(float value) {
  std::vector<float> all = {value};
  float below = value, above = value;
  for (int i = 0; i < 6; ++i) {
    all.push_back(below = std::nextafter(below, -1e9f));
    all.push_back(above = std::nextafter(above, 1e9f));
  }
  return all;
}

// A membership test for a pair of fp32 numbers: is it what a single draw can make of some radius and
// angle? Candidates: every fp32 radius near sqrt(a^2 + b^2), every angle near atan2 whose quarter and
// rest give other fp32 numbers.
bool a_single_draw_makes(float a, float b) {
  const double r = std::hypot(static_cast<double>(a), static_cast<double>(b));
  const double word = std::atan2(static_cast<double>(b), static_cast<double>(a)) /
                      (2 * std::acos(-1.0)) * 4294967296.0;
  const std::vector<float> radii = neighbours(static_cast<float>(r));
  const auto centre = static_cast<int64_t>(std::llround(word));
  // The rest of an eighth of a turn is below 2^29, so that fp32 keeps multiples of 32 at most.
  for (int64_t w = centre - 600; w <= centre + 600; ++w) {
    float cosine, sine;
    noise_pair(1.0f, static_cast<uint32_t>(w), cosine, sine);
    for (const float radius : radii) {
      if (radius * cosine == a && radius * sine == b) return true;
    }
  }
  return false;
}

// How often the test says yes to the true noise, and to noise with a sum subtracted that is wrong by
// a few units in the last place.
struct MembershipTest {
  double of_true, of_wrong;
};
MembershipTest membership_test(NoiseGenerator generator) {
  const NoiseKeys keys = noise_keys(generator, source_of(generator).key);
  int yes = 0, wrong_yes = 0, count = 0;
  for (uint64_t group = 0; group < 150; ++group) {
    const NoiseGroup<float> made = noise_group<float>(keys, 1, 1, group);
    for (int k = 0; k < kNoiseGroup; k += 2) {
      const float a = made.value[k], b = made.value[k + 1];
      const float off = std::nextafter(std::nextafter(a, 9.0f), 9.0f);
      yes += a_single_draw_makes(a, b);
      wrong_yes += a_single_draw_makes(off, b);
      ++count;
    }
  }
  return {1.0 * yes / count, 1.0 * wrong_yes / count};
}

// The attack that hardened noise is for works on a single draw: it never rejects the truth, and it
// often rejects a wrong sum. On the sum of two draws both answers are equally frequent: five standard
// errors of a difference of two shares of 1200 are 0.102.
TEST(NoiseLaw, AMembershipTestSucceedsOnASingleDrawAndFailsOnHardenedNoise) {
  const MembershipTest single = membership_test(NoiseGenerator::secure);
  EXPECT_EQ(single.of_true, 1);
  EXPECT_LT(single.of_wrong, 0.9);
  const MembershipTest hardened = membership_test(NoiseGenerator::hardened);
  EXPECT_NEAR(hardened.of_true, hardened.of_wrong, 0.102);
  EXPECT_LT(hardened.of_true, 0.9);
}

// What hardened noise leaves is a multiple of L whatever it was added to: without that the last bits
// of a + z tell a large a from a small one, where the sum is small.
TEST(NoiseLaw, HardenedSumsLieOnOneLatticeWhateverTheyAreSumsOf) {
  for (const double deviation : {1.0, 0.37, 1e-5, 3000.0}) {
    for (const DType dtype : {at::kFloat, at::kDouble}) {
      const double lattice =
          std::ldexp(1.0, std::ilogb(deviation) - (dtype == at::kFloat ? 10 : 30));
      for (const double sum : {0.0, 1e-7, 1.7, -90.1}) {
        const Tensor out = at::full({20'000}, sum * deviation, dtype);
        add_noise(out, NoiseKnobs{3, deviation}, source_of(NoiseGenerator::hardened), 2, 0);
        const Tensor steps = out.to(at::kDouble) / lattice;
        EXPECT_TRUE(at::equal(steps, steps.round())) << deviation << " on " << sum;
        // Not a coarser one: half of the steps are odd.
        const double odd = (steps / 2 - (steps / 2).floor()).mean().item<double>() * 2;
        EXPECT_NEAR(odd, 0.5, 5 * 0.5 / std::sqrt(20'000.0));
      }
    }
  }
}

double correlation(const Tensor& a, const Tensor& b) {
  return (a * b).mean().item<double>();  // of standard normals
}

TEST(NoiseLaw, NeighboursStepsAndParametersAreUncorrelated) {
  for (const NoiseGenerator generator : kGenerators) {
    const NoiseSource source = source_of(generator);
    const int64_t n = 1'000'000;
    const double bound = 5 / std::sqrt(static_cast<double>(n));
    const Tensor z = normals(source, n + 32);
    const Tensor begin = z.narrow(0, 0, n);
    for (const int64_t lag : {1, 2, 3, 8, 15, 16, 17, 32})
      EXPECT_LT(std::abs(correlation(begin, z.narrow(0, lag, n))), bound)
          << name_of(generator) << " lag " << lag;
    // Squares too: a radius shared between pairs leaves the values uncorrelated but not their
    // sizes.
    for (const int64_t lag : {1, 2, 4, 6, 8, 10, 12, 14})
      EXPECT_LT(
          std::abs(correlation(begin * begin - 1, z.narrow(0, lag, n) * z.narrow(0, lag, n) - 1)),
          2 * bound)
          << name_of(generator) << " lag " << lag;
    for (const double step : {1.0, 2.0, 4294967296.0})
      EXPECT_LT(std::abs(correlation(begin, normals(source, n, at::kDouble, step))), bound) << step;
    for (const uint32_t parameter : {1u, 2u, 65536u})
      EXPECT_LT(std::abs(correlation(begin, normals(source, n, at::kDouble, 0, parameter))), bound)
          << parameter;
  }
}

}  // namespace
}  // namespace veil
