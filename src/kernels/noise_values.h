// The normals of privacy noise, shared by the CPU reference and the CUDA kernel.
//
// Element e of parameter p at step t has one value z(t, p, e) under a key, whoever asks for it. Elements 12 g to 12 g + 11
// are a group: one block of 16 random words makes its six pairs by Box-Muller, 53 bits for each radius and 32 for each
// angle. So a radius takes 2^53 values up to 8.65, where 24 bits end at 5.77 and 32 at 6.66: the tails that epsilon counts
// on are there.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/chacha.h"

namespace veil {

// secure: ChaCha20 with all 256 bits of the key. philox: for speed comparisons; its key has 64 bits, and it was not made to
// withstand anybody.
enum class NoiseGenerator { secure, philox };

inline constexpr int kNoiseGroup = 12;
inline constexpr int64_t kNoiseSteps = int64_t{1} << 48;  // steps and groups are below these
inline constexpr int64_t kNoiseGroups = int64_t{1} << 46;

// Changes from step to step; may lie in device memory so that a captured graph can read it. The step is a whole number.
struct NoiseKnobs {
  double step = 0, deviation = 0;
};

// 16 words, a function of (key, step, parameter, group). Counters of different blocks differ.
VEIL_HOST_DEVICE ChaChaBlock noise_words(NoiseGenerator generator, const ChaChaKey& key, uint64_t step,
                                         uint32_t parameter, uint64_t group) {
  if (generator == NoiseGenerator::secure) {
    const auto high = static_cast<uint32_t>(group >> 32 | (step >> 32) << 16);
    return chacha20(key, static_cast<uint32_t>(group), high, static_cast<uint32_t>(step), parameter);
  }
  ChaChaBlock block;
  for (uint32_t call = 0; call < 4; ++call) {
    const Philox4 four = philox4x32(uint64_t{key.word[1]} << 32 | key.word[0], (group * 4 + call) | (step >> 32) << 48,
                                    uint64_t{parameter} << 32 | static_cast<uint32_t>(step));
    for (int i = 0; i < 4; ++i) block.word[4 * call + i] = four.word[i];
  }
  return block;
}

// 53 bits for the radius of pair 0 to 5: a word of its own and 21 bits of the last four words.
VEIL_HOST_DEVICE uint64_t radius_bits(const ChaChaBlock& block, int64_t pair) {
  const uint32_t* shared = block.word + 12;
  uint32_t top = pair < 4 ? shared[pair & 3] >> 11 : 0;
  if (pair == 4) top = (shared[0] & 0x7FFu) << 10 | (shared[1] & 0x7FFu) >> 1;
  if (pair == 5) top = (shared[2] & 0x7FFu) << 10 | (shared[3] & 0x7FFu) >> 1;
  return uint64_t{top} << 32 | block.word[2 * pair];
}

// -ln u, u = (bits + 1/2) / 2^53 in (0, 1): the middle of its interval. Where u is more than 1/2, 1 - u is the number that has all its digits.
VEIL_HOST_DEVICE double noise_exponential(uint64_t bits, double) {
  constexpr uint64_t kTop = uint64_t{1} << 52;
  constexpr double kUnit = 1.1102230246251565e-16;  // 2^-53
  const bool upper = bits >= kTop;
  const double x = (static_cast<double>(upper ? 2 * kTop - 1 - bits : bits) + 0.5) * kUnit;
  return upper ? -log1p(-x) : -log(x);
}

// The same in fp32, without a branch. With u = m 2^e and s = (1 - m) / (1 + m), -ln u = 2 artanh(s) - e ln 2; m lies in [3/4, 3/2), or is u itself with e = 0 in the upper half, where
// 1 - m needs no subtraction.
VEIL_HOST_DEVICE float noise_exponential(uint64_t bits, float) {
  const auto high = static_cast<uint32_t>(bits >> 32), low = static_cast<uint32_t>(bits);
  const bool upper = high >= 1u << 20;
  const uint32_t flip = upper ? 0xFFFFFFFFu : 0;
  const float x = static_cast<float>((high ^ flip) & 0xFFFFFu) * 4.76837158203125e-07f +                // 2^-21
                  (static_cast<float>(low ^ flip) * 1.1102230246251565e-16f + 5.551115123125783e-17f);  // 2^-53, 2^-54
#ifdef __CUDA_ARCH__
  const uint32_t pattern = __float_as_uint(x);
#else
  uint32_t pattern;
  std::memcpy(&pattern, &x, sizeof pattern);
#endif
  const int32_t exponent = upper ? 0 : static_cast<int32_t>(pattern - 0x3F400000u) >> 23;
  const uint32_t reduced = pattern - (static_cast<uint32_t>(exponent) << 23);
#ifdef __CUDA_ARCH__
  const float m = __uint_as_float(reduced);
#else
  float m;
  std::memcpy(&m, &reduced, sizeof m);
#endif
  const float away = upper ? x : 1.0f - m;  // 1 - m
#ifdef __CUDA_ARCH__
  const float s = __fdividef(away, 2.0f - away);
#else
  const float s = away / (2.0f - away);
#endif
  const float z = s * s;
  // artanh(s) / s to z^6: |s| is 1/3 at most.
  float series = 1.0f / 13;
  series = series * z + 1.0f / 11;
  series = series * z + 1.0f / 9;
  series = series * z + 1.0f / 7;
  series = series * z + 1.0f / 5;
  series = series * z + 1.0f / 3;
  const float twice = s + s;
  return twice + (twice * z) * series - static_cast<float>(exponent) * 0.6931471805599453f;
}

// sqrt(-2 ln u).
template <typename Real>
VEIL_HOST_DEVICE Real noise_radius(uint64_t bits) {
  const Real doubled = 2 * noise_exponential(bits, Real());
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Real) == 4) {
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(doubled));
    return root;
  }
#endif
  using std::sqrt;
  return sqrt(doubled);
}

VEIL_HOST_DEVICE void eighth_turn(double angle, double& cosine, double& sine) {
  using std::cos, std::sin;
  cosine = cos(angle);
  sine = sin(angle);
}
// To a unit in the last place for angles up to pi / 4 (Cephes' polynomials).
VEIL_HOST_DEVICE void eighth_turn(float angle, float& cosine, float& sine) {
  const float z = angle * angle;
  float odd = -1.9515295891e-4f;
  odd = odd * z + 8.3321608736e-3f;
  odd = odd * z - 1.6666654611e-1f;
  sine = angle + angle * (z * odd);
  float even = 2.443315711809948e-5f;
  even = even * z - 1.388731625493765e-3f;
  even = even * z + 4.166664568298827e-2f;
  cosine = 1.0f - 0.5f * z + z * (z * even);
}

// The cosine and sine of `word` / 2^32 of a turn. Whole quarters are taken off first, as integers, so that the rest is small and exact.
template <typename Real>
VEIL_HOST_DEVICE void noise_direction(uint32_t word, Real& cosine, Real& sine) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;             // the nearest
  const auto rest = static_cast<int32_t>(word - (quarter << 30));  // an eighth of a turn at most
  Real c, s;
  eighth_turn(static_cast<Real>(rest) * static_cast<Real>(1.4629180792671596e-9), c, s);  // 2 pi / 2^32
  cosine = quarter & 1 ? s : c;
  sine = quarter & 1 ? c : s;
  if (((quarter + 1) & 2) != 0) cosine = -cosine;
  if ((quarter & 2) != 0) sine = -sine;
}

template <typename Real>
struct NoiseGroup {
  Real value[kNoiseGroup];
};

// The normals of a group, in Real's arithmetic.
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_group(NoiseGenerator generator, const ChaChaKey& key, uint64_t step,
                                              uint32_t parameter, uint64_t group) {
  const ChaChaBlock block = noise_words(generator, key, step, parameter, group);
  NoiseGroup<Real> result;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int64_t pair = 0; pair < kNoiseGroup / 2; ++pair) {
    const Real radius = noise_radius<Real>(radius_bits(block, pair));
    Real cosine, sine;
    noise_direction<Real>(block.word[2 * pair + 1], cosine, sine);
    result.value[2 * pair] = radius * cosine;
    result.value[2 * pair + 1] = radius * sine;
  }
  return result;
}

}  // namespace veil
