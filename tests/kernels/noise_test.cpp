// The noise that privacy rests on: its law, its reach, and that an element's value depends on
// nothing but its place.
#include "kernels/noise.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/stream_key.h"
#include "tensor/stream.h"

namespace veil {
namespace {

const NoiseGenerator kGenerators[] = {NoiseGenerator::secure, NoiseGenerator::philox,
                                      NoiseGenerator::hardened};

NoiseSource source_of(NoiseGenerator generator, uint8_t secret = 1, uint8_t nonce = 2,
                      KeyDomain domain = KeyDomain::noise) {
  RunSecret secret_bytes{};
  RunNonce nonce_bytes{};
  secret_bytes[0] = secret;
  nonce_bytes[0] = nonce;
  return {generator, derive_key(secret_bytes, nonce_bytes, domain)};
}

Tensor normals(const NoiseSource& source, int64_t count, DType dtype = at::kDouble, double step = 0,
               uint32_t parameter = 0, int64_t first = 0, Device device = cpu_device()) {
  const Tensor out = at::zeros({count}, at::TensorOptions().dtype(dtype).device(device));
  add_noise(out, NoiseKnobs{step, 1}, source, parameter, first);
  return out;
}

std::vector<double> values_of(const Tensor& tensor) {
  const double* at = tensor.data_ptr<double>();
  return {at, at + tensor.numel()};
}

// Every bound below is five standard errors of the statistic over kCount independent normals,
// unless it says otherwise.
constexpr int64_t kCount = 3'000'000;

TEST(NoiseLaw, MomentsAreThoseOfTheNormal) {
  for (const NoiseGenerator generator : kGenerators) {
    const std::vector<double> z = values_of(normals(source_of(generator), kCount));
    double sum[5] = {};
    for (const double value : z) {
      double power = 1;
      for (int k = 1; k <= 4; ++k) sum[k] += power *= value;
    }
    const double n = static_cast<double>(kCount), error = 5 / std::sqrt(n);
    EXPECT_LT(std::abs(sum[1] / n), error) << name_of(generator);
    EXPECT_LT(std::abs(sum[2] / n - 1), error * std::sqrt(2.0)) << name_of(generator);
    EXPECT_LT(std::abs(sum[3] / n), error * std::sqrt(15.0)) << name_of(generator);
    EXPECT_LT(std::abs(sum[4] / n - 3), error * std::sqrt(96.0)) << name_of(generator);
  }
}

// Kolmogorov and Smirnov: sqrt(n) D exceeds 2.2 once in 8,000 times.
TEST(NoiseLaw, TheDistributionFunctionIsTheNormals) {
  for (const NoiseGenerator generator : kGenerators) {
    std::vector<double> z = values_of(normals(source_of(generator), kCount));
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
      const Tensor z = normals(source, kCount, at::kFloat, 3, parameter);
      const float* at = z.data_ptr<float>();
      for (int64_t i = 0; i < kCount; ++i) {
        beyond_four += std::abs(at[i]) > 4;
        beyond_five += std::abs(at[i]) > 5;
      }
      count += kCount;
    }
    const double four = 6.334e-5 * static_cast<double>(count),
                 five = 5.733e-7 * static_cast<double>(count);
    EXPECT_NEAR(static_cast<double>(beyond_four), four, 5 * std::sqrt(four)) << name_of(generator);
    EXPECT_NEAR(static_cast<double>(beyond_five), five, 4 * std::sqrt(five)) << name_of(generator);
    EXPECT_GT(beyond_five, 0) << name_of(generator);
  }
}

// The counters as they are laid out: a run that is resumed by a later program must find the same
// noise.
TEST(Noise, WordsAreTheGeneratorsOwn) {
  const ChaChaKey key = source_of(NoiseGenerator::secure).key;
  const uint64_t step = 0x7766'55443322ull, group = 0x0A11'99887766ull;
  const uint32_t parameter = 0xDEADBEEF;
  for (const bool further : {false, true}) {
    const ChaChaBlock secure =
        noise_words(NoiseGenerator::secure, key, step, parameter, group, further);
    const ChaChaBlock expected =
        chacha20(key, 0x99887766, further ? 0x77668A11 : 0x77660A11, 0x55443322, 0xDEADBEEF);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(secure.word[i], expected.word[i]) << i;
    const ChaChaBlock philox =
        noise_words(NoiseGenerator::philox, key, step, parameter, group, further);
    for (uint32_t call = 0; call < 4; ++call) {
      const uint64_t low = (group << 2 | call) | (further ? 0x7766'8000ull : 0x7766'0000ull) << 32;
      const Philox4 four =
          philox4x32(uint64_t{key.word[1]} << 32 | key.word[0], low, 0xDEADBEEF'55443322ull);
      for (uint32_t i = 0; i < 4; ++i)
        EXPECT_EQ(philox.word[4 * call + i], four.word[i]) << call << " " << i;
    }
  }
}

constexpr uint32_t kLast = 0xFFFFFFFFu;

template <typename Real>
Real radius(uint32_t word, uint32_t further) {
  return noise_radius(noise_uniform<Real>(word, further));
}
template <typename Real>
Real radius(uint32_t word) {
  return noise_radius(noise_uniform<Real>(word));
}

TEST(Noise, ARadiusReachesAsFarAsSixtyFourBitsAllow) {
  const double largest = std::sqrt(2 * 65 * std::log(2.0));  // 9.49
  EXPECT_DOUBLE_EQ(radius<double>(0, 0), largest);
  EXPECT_FLOAT_EQ(radius<float>(0, 0), static_cast<float>(largest));
  const double smallest = std::sqrt(2 * std::ldexp(1.0, -65));
  EXPECT_NEAR(radius<double>(kLast, kLast), smallest, 1e-15 * smallest);
  EXPECT_NEAR(radius<float>(kLast, kLast), static_cast<float>(smallest),
              1e-6f * static_cast<float>(smallest));
}

// At both ends, where neighbours lie far apart, where further words begin and end, and at 1/2,
// where the formula changes.
TEST(Noise, EveryRadiusIsSmallerThanTheOneBefore) {
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_GT(radius<double>(0, i), radius<double>(0, i + 1)) << i;
    ASSERT_GT(radius<float>(0, i), radius<float>(0, i + 1)) << i;
    ASSERT_GT(radius<double>(kLast, kLast - i - 1), radius<double>(kLast, kLast - i)) << i;
    ASSERT_GT(radius<float>(kLast, kLast - i - 1), radius<float>(kLast, kLast - i)) << i;
    ASSERT_GT(radius<double>(i, kLast), radius<double>(i + 1, 0)) << i;
    ASSERT_GT(radius<double>(kLast - i - 1, kLast), radius<double>(kLast - i, 0)) << i;
  }
  ASSERT_GT(radius<double>(kNoiseEnd - 1, kLast), radius<double>(kNoiseEnd));
  ASSERT_GT(radius<double>(kLast - kNoiseEnd), radius<double>(kLast - kNoiseEnd + 1, 0));
  for (uint32_t i = (1u << 31) - 1000; i < (1u << 31) + 1000; ++i)
    ASSERT_GT(radius<double>(i), radius<double>(i + 1)) << i;
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
        const double r = radius<double>(block.word[k / 2 * 2]);
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
    EXPECT_EQ(seen_one, kLast) << name_of(generator);
    EXPECT_EQ(seen_zero, kLast) << name_of(generator);
    std::sort(words.begin(), words.end());
    int64_t repeats = 0;
    for (size_t i = 1; i < words.size(); ++i) repeats += words[i] == words[i - 1];
    EXPECT_NEAR(static_cast<double>(repeats), 2048, 5 * std::sqrt(2048.0)) << name_of(generator);
  }
}

// The pairs whose normals differ, a bit each.
template <typename Real>
uint32_t changed_pairs(const NoiseGroup<Real>& a, const NoiseGroup<Real>& b) {
  uint32_t changed = 0;
  for (int k = 0; k < kNoiseGroup; ++k) changed |= (a.value[k] != b.value[k] ? 1u : 0u) << k / 2;
  return changed;
}

// No random bit of a block serves twice, and none is left over.
TEST(Noise, EachBitOfABlockBelongsToOnePair) {
  ChaChaBlock block;
  for (uint32_t& word : block.word) word = 0x5A5A5A5Au;
  const ChaChaBlock further = block;
  const NoiseGroup<double> before = noise_normals<double>(block, &further);
  const NoiseGroup<float> coarse = noise_normals<float>(block, nullptr);
  for (int bit = 0; bit < 512; ++bit) {
    ChaChaBlock flipped = block;
    flipped.word[bit / 32] ^= 1u << bit % 32;
    EXPECT_EQ(changed_pairs(before, noise_normals<double>(flipped, &further)), 1u << bit / 64)
        << "bit " << bit;
    // fp64's lower half: what rounding to 53 bits leaves of it.
    if (bit % 32 < 16) continue;
    EXPECT_EQ(changed_pairs(before, noise_normals<double>(block, &flipped)), 1u << bit / 64)
        << "further bit " << bit;
    EXPECT_EQ(changed_pairs(coarse, noise_normals<float>(flipped, nullptr)), 1u << bit / 64)
        << "bit " << bit << " in fp32";
  }
}

TEST(Noise, FurtherWordsBelongToPairsAtAnEndAlone) {
  ChaChaBlock block, further = {};
  for (uint32_t& word : block.word) word = 0x5A5A5A5Au;
  EXPECT_FALSE(noise_needs_further_words(block));
  block.word[6] = 77;                  // pair 3, in the tail
  block.word[10] = kLast - 12;         // pair 5, next to 0
  block.word[1] = block.word[15] = 0;  // angles have no ends
  EXPECT_TRUE(noise_needs_further_words(block));
  const NoiseGroup<float> before = noise_normals<float>(block, &further);
  for (int bit = 0; bit < 512; ++bit) {
    ChaChaBlock flipped = further;
    flipped.word[bit / 32] ^= 1u << bit % 32;
    const uint32_t expected = bit / 32 == 6 ? 1u << 3 : bit / 32 == 10 ? 1u << 5 : 0;
    const uint32_t changed = changed_pairs(before, noise_normals<float>(block, &flipped));
    // fp32 may round a lower bit away; it never passes on to another pair.
    if (bit % 32 >= 24) {
      EXPECT_EQ(changed, expected) << "bit " << bit;
    } else {
      EXPECT_EQ(changed & ~expected, 0u) << "bit " << bit;
    }
  }
}

// One group in 4096: found, and made from both of its blocks.
TEST(Noise, GroupsWithAPairAtAnEndTakeTheirFurtherWords) {
  for (const NoiseGenerator generator : kGenerators) {
    const ChaChaKey key = source_of(generator).key;
    int found = 0, differ = 0;
    constexpr uint64_t kGroups = 100'000;
    for (uint64_t group = 0; group < kGroups; ++group) {
      const ChaChaBlock block = noise_words(generator, key, 3, 4, group);
      if (!noise_needs_further_words(block)) continue;
      ++found;
      const ChaChaBlock further = noise_words(generator, key, 3, 4, group, /*further=*/true);
      const NoiseGroup<float> whole = noise_draw<float>(generator, key, 3, 4, group);
      EXPECT_EQ(changed_pairs(whole, noise_normals<float>(block, &further)), 0u);
      differ += changed_pairs(whole, noise_normals<float>(block, nullptr)) != 0;
    }
    EXPECT_NEAR(found, kGroups / 4096.0, 5 * std::sqrt(kGroups / 4096.0)) << name_of(generator);
    EXPECT_GT(differ, found / 2) << "fp32 rounds a further word away now and then, not as a rule";
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
    noise_direction<float>(static_cast<uint32_t>(w), cosine, sine);
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

// Both draws count, with their weights: the hardened normal is their sum to a rounding or two.
TEST(Noise, HardenedNoiseIsTheWeightedSumOfTwoIndependentDraws) {
  const NoiseKeys keys =
      noise_keys(NoiseGenerator::hardened, source_of(NoiseGenerator::secure).key);
  EXPECT_NEAR(kNoiseFirstWeight * kNoiseFirstWeight + kNoiseSecondWeight * kNoiseSecondWeight, 1,
              1e-15);
  double cross = 0, squares = 0;
  constexpr uint64_t kGroups = 20'000;
  for (uint64_t group = 0; group < kGroups; ++group) {
    const auto whole = noise_group<double>(keys, 5, 7, group);
    const auto first = noise_draw<double>(NoiseGenerator::secure, keys.key, 5, 7, group);
    const auto second = noise_second_draw<double>(keys.second, 5, 7, group);
    for (int k = 0; k < kNoiseGroup; ++k) {
      ASSERT_NEAR(whole.value[k],
                  kNoiseFirstWeight * first.value[k] + kNoiseSecondWeight * second.value[k], 1e-14);
      cross += first.value[k] * second.value[k];
      squares += second.value[k] * second.value[k];
    }
  }
  const double n = static_cast<double>(kGroups * kNoiseGroup);
  EXPECT_LT(std::abs(cross / n), 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
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

TEST(Noise, AnyOtherStepParameterSecretNonceOrDomainGivesAnotherStream) {
  for (const NoiseGenerator generator : kGenerators) {
    const int64_t n = 1000;
    const Tensor z = normals(source_of(generator), n);
    std::vector<Tensor> others;
    for (const double step : {1.0, 65536.0, 4294967296.0, 281474976710655.0})
      others.push_back(normals(source_of(generator), n, at::kDouble, step));
    for (const uint32_t parameter : {1u, 65536u, 0xFFFFFFFFu})
      others.push_back(normals(source_of(generator), n, at::kDouble, 0, parameter));
    for (const int64_t first : {int64_t{16}, int64_t{16} << 32, (int64_t{16} << 44) + 16})
      others.push_back(normals(source_of(generator), n, at::kDouble, 0, 0, first));
    others.push_back(normals(source_of(generator, 9), n));
    others.push_back(normals(source_of(generator, 1, 9), n));
    others.push_back(normals(source_of(generator, 1, 2, KeyDomain::clip_count), n));
    others.push_back(z);
    for (size_t i = 0; i < others.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_EQ((others[i] == others[j]).sum().item<int64_t>(), 0) << i << " " << j;
    }
  }
}

// Every cut of 100 elements into three ranges, from a first element that is no group's begin.
void cuts_give_the_same_bits(Device device) {
  for (const NoiseGenerator generator : kGenerators) {
    for (const DType dtype : {at::kFloat, at::kDouble}) {
      const NoiseSource source = source_of(generator);
      const int64_t n = 100, first = 1'000'003;
      const Tensor ones = at::full({n}, 1, at::TensorOptions().dtype(dtype).device(device));
      const Tensor whole = ones.clone();
      add_noise(whole, NoiseKnobs{7, 2.5}, source, 3, first);
      for (int64_t a = 0; a <= n; a += 1) {
        for (int64_t b = a; b <= n; b += device.is_cuda() ? 37 : 7) {
          const Tensor cut = ones.clone();
          for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, a}, {a, b}, {b, n}})
            add_noise(cut.narrow(0, from, to - from), NoiseKnobs{7, 2.5}, source, 3, first + from);
          ASSERT_TRUE(at::equal(cut, whole)) << a << " " << b;
        }
      }
    }
  }
}

TEST(Noise, AnyCutIntoRangesGivesTheSameBits) {
  cuts_give_the_same_bits(cpu_device());
}

TEST(Noise, ThreadsChangeNothing) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor alone = normals(source_of(NoiseGenerator::secure), 100'001, at::kFloat, 1, 1, 5);
  at::set_num_threads(4);
  EXPECT_TRUE(
      at::equal(alone, normals(source_of(NoiseGenerator::secure), 100'001, at::kFloat, 1, 1, 5)));
  at::set_num_threads(before);
}

void is_added_in_proportion(Device device) {
  const NoiseSource source = source_of(NoiseGenerator::secure);
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const Tensor z = normals(source, 50, at::kDouble, 4, 1, 0, device);
  const Tensor out = at::full({50}, 10, options);
  add_noise(out, NoiseKnobs{4, 3}, source, 1, 0);
  EXPECT_LT((out - (10 + 3 * z)).abs().max().item<double>(), 1e-14);
  // Nothing is touched without noise, not even what is no number.
  const Tensor odd = at::full({50}, std::nan(""), options);
  odd.narrow(0, 10, 40).fill_(-0.0);
  const Tensor kept = odd.clone();
  add_noise(odd, NoiseKnobs{4, 0}, source, 1, 0);
  add_noise(odd, at::zeros({2}, options), source, 1, 0);
  EXPECT_TRUE(at::equal(odd.view(at::kLong), kept.view(at::kLong)));
  add_noise(odd.narrow(0, 0, 0), NoiseKnobs{4, 1}, source, 1, 0);
}

TEST(Noise, IsAddedInProportionAndWithoutDeviationNotAtAll) {
  is_added_in_proportion(cpu_device());
}

TEST(Noise, KnobsInMemoryGiveWhatValuesGive) {
  const NoiseSource source = source_of(NoiseGenerator::secure);
  const Tensor knobs = at::tensor({6.0, 1.5, 99.0}, at::kDouble);
  const Tensor read = at::zeros({30}, at::kDouble), given = at::zeros({30}, at::kDouble);
  add_noise(read, knobs, source, 2, 0);
  add_noise(given, NoiseKnobs{6, 1.5}, source, 2, 0);
  EXPECT_TRUE(at::equal(read, given));
}

TEST(Noise, GeneratorsGoByTheirNames) {
  NoiseGenerator generator{};
  EXPECT_EQ(name_of(NoiseGenerator::secure), "secure");
  EXPECT_EQ(name_of(NoiseGenerator::hardened), "hardened");
  EXPECT_TRUE(find_name("Philox", generator));
  EXPECT_EQ(generator, NoiseGenerator::philox);
  EXPECT_TRUE(find_name("chacha20", generator));
  EXPECT_EQ(generator, NoiseGenerator::secure);
  EXPECT_FALSE(find_name("mersenne", generator));
}

// The same integers on both; log, sine and cosine may differ in their last places.
TEST(GpuNoise, AgreesWithTheCpuToAFewUnits) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  for (const NoiseGenerator generator : kGenerators) {
    for (const DType dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t first : {0, 4, 7, 24}) {
        const Tensor cpu = normals(source_of(generator), 1'000'001, dtype, 11, 5, first);
        const Tensor made =
            normals(source_of(generator), 1'000'001, dtype, 11, 5, first, gpu).cpu();
        if (generator == NoiseGenerator::hardened) {
          // A value next to the middle between two lattice points may fall to either side.
          const double lattice = dtype == at::kFloat ? 0x1p-10 : 0x1p-30;
          const Tensor apart = (made - cpu).to(at::kDouble).abs();
          EXPECT_LE(apart.max().item<double>(), lattice);
          // Devices differ by 16 units of fp32 below 8, so by 2^-17 of 2^-10 to either side.
          EXPECT_LT((apart > 0).to(at::kDouble).mean().item<double>(), 0x1p-6);
          continue;
        }
        const double worst = ((made - cpu).abs() / cpu.abs()).max().item<double>();
        EXPECT_LT(worst, dtype == at::kFloat ? 8 * 1.2e-7 : 8 * 2.3e-16)
            << name_of(generator) << " from " << first;
      }
    }
  }
}

TEST(GpuNoise, AnyCutIntoRangesGivesTheSameBits) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  cuts_give_the_same_bits(gpu_device(0));
}

TEST(GpuNoise, IsAddedInProportionAndWithoutDeviationNotAtAll) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  is_added_in_proportion(gpu_device(0));
}

TEST(GpuNoise, KnobsInDeviceMemoryGiveWhatValuesGive) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const auto options = at::TensorOptions().dtype(at::kFloat).device(gpu_device(0));
  const NoiseSource source = source_of(NoiseGenerator::secure);
  const Tensor knobs = at::tensor({6.0, 1.5}, at::kDouble).to(options.device());
  const Tensor read = at::zeros({30'000}, options), given = at::zeros({30'000}, options);
  add_noise(read, knobs, source, 2, 0);
  add_noise(given, NoiseKnobs{6, 1.5}, source, 2, 0);
  EXPECT_TRUE(at::equal(read, given));
}

TEST(GpuNoise, AReplayedGraphReadsTheStepAnew) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  const NoiseSource source = source_of(NoiseGenerator::secure);
  const Tensor knobs = at::tensor({1.0, 2.0}, at::kDouble).to(gpu);
  const Tensor out = at::zeros({1000}, at::TensorOptions().dtype(at::kFloat).device(gpu));
  synchronize(gpu);  // what is above ran on another stream
  const Stream stream = Stream::create(gpu);
  const StreamGuard guard(stream);
  Graph graph = Graph::capture(gpu, [&] { add_noise(out, knobs, source, 2, 0); });
  for (const double step : {5.0, 6.0}) {
    knobs.narrow(0, 0, 1).fill_(step);
    out.zero_();
    graph.replay();
    synchronize(gpu);
    EXPECT_TRUE(at::equal(out, 2 * normals(source, 1000, at::kFloat, step, 2, 0, gpu)))
        << "step " << step;
  }
}

}  // namespace
}  // namespace veil
