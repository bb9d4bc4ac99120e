// The noise that privacy rests on: what it is made of, and that an element's value depends on nothing
// but its place.
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

#include "kernels/test_noise.h"
#include "tensor/stream.h"

namespace veil {
namespace {

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

TEST(Noise, ARadiusReachesAsFarAsSixtyFourBitsAllow) {
  const double largest = std::sqrt(2 * 65 * std::log(2.0));  // 9.49
  EXPECT_DOUBLE_EQ(radius_of<double>(0, 0), largest);
  EXPECT_FLOAT_EQ(radius_of<float>(0, 0), static_cast<float>(largest));
  const double smallest = std::sqrt(2 * std::ldexp(1.0, -65));
  EXPECT_NEAR(radius_of<double>(kLastWord, kLastWord), smallest, 1e-15 * smallest);
  EXPECT_NEAR(radius_of<float>(kLastWord, kLastWord), static_cast<float>(smallest),
              1e-6f * static_cast<float>(smallest));
}

// At both ends, where neighbours lie far apart, where further words begin and end, and at 1/2,
// where the formula changes.
TEST(Noise, EveryRadiusIsSmallerThanTheOneBefore) {
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_GT(radius_of<double>(0, i), radius_of<double>(0, i + 1)) << i;
    ASSERT_GT(radius_of<float>(0, i), radius_of<float>(0, i + 1)) << i;
    ASSERT_GT(radius_of<double>(kLastWord, kLastWord - i - 1),
              radius_of<double>(kLastWord, kLastWord - i))
        << i;
    ASSERT_GT(radius_of<float>(kLastWord, kLastWord - i - 1),
              radius_of<float>(kLastWord, kLastWord - i))
        << i;
    ASSERT_GT(radius_of<double>(i, kLastWord), radius_of<double>(i + 1, 0)) << i;
    ASSERT_GT(radius_of<double>(kLastWord - i - 1, kLastWord), radius_of<double>(kLastWord - i, 0))
        << i;
  }
  ASSERT_GT(radius_of<double>(kNoiseEnd - 1, kLastWord), radius_of<double>(kNoiseEnd));
  ASSERT_GT(radius_of<double>(kLastWord - kNoiseEnd),
            radius_of<double>(kLastWord - kNoiseEnd + 1, 0));
  for (uint32_t i = (1u << 31) - 1000; i < (1u << 31) + 1000; ++i)
    ASSERT_GT(radius_of<double>(i), radius_of<double>(i + 1)) << i;
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
  block.word[10] = kLastWord - 12;     // pair 5, next to 0
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
