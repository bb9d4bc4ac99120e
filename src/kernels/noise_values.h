// The normals of privacy noise, shared by the CPU reference and the CUDA kernel.
//
// Element e of parameter p at step t has one value z(t, p, e) under a key, whoever asks for it.
// Elements 16 g to 16 g + 15 are a group: one block of 16 random words makes its eight pairs by
// Box-Muller, a word for each radius and one for each angle. A radius whose word lies within 2^16
// of either end, in the tail or next to 0, gets a second word from a further block; one group in
// 4096 has such a pair. So radii reach 9.49, where 24 bits end at 5.77 and 32 at 6.66: the tails
// that epsilon counts on are there. In the tail neighbouring radii lie a few units of fp32 apart;
// next to 0, where fp32's numbers are ever denser, radii are coarser than those.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/chacha.h"

namespace veil {

// secure: ChaCha20 with all 256 bits of the key. philox: for speed comparisons; its key has 64
// bits, and it was not made to withstand anybody.
enum class NoiseGenerator { secure, philox };

inline constexpr int kNoiseGroup = 16;
inline constexpr int64_t kNoiseSteps = int64_t{1} << 48;  // steps and groups are below these
inline constexpr int64_t kNoiseGroups = int64_t{1} << 45;

// Changes from step to step; may be in device memory so that a captured graph can read it. The
// step is a whole number.
struct NoiseKnobs {
  double step = 0, deviation = 0;
};
inline constexpr int64_t kNoiseKnobs = sizeof(NoiseKnobs) / sizeof(double);
static_assert(kNoiseKnobs == 2);

// 16 words, a function of (key, step, parameter, group, whether further ones are requested).
// Counters of different blocks differ.
VEIL_HOST_DEVICE ChaChaBlock noise_words(NoiseGenerator generator, const ChaChaKey& key,
                                         uint64_t step, uint32_t parameter, uint64_t group,
                                         bool further = false) {
  if (generator == NoiseGenerator::secure) {
    const auto high =
        static_cast<uint32_t>(group >> 32 | (further ? 1u << 15 : 0) | (step >> 32) << 16);
    return chacha20(key, static_cast<uint32_t>(group), high, static_cast<uint32_t>(step),
                    parameter);
  }
  ChaChaBlock block;
  for (uint32_t call = 0; call < 4; ++call) {
    const uint64_t low =
        (group * 4 + call) | (further ? uint64_t{1} << 47 : 0) | (step >> 32) << 48;
    const Philox4 four = philox4x32(uint64_t{key.word[1]} << 32 | key.word[0], low,
                                    uint64_t{parameter} << 32 | static_cast<uint32_t>(step));
    for (int i = 0; i < 4; ++i) block.word[4 * call + i] = four.word[i];
  }
  return block;
}

// u in (0, 1) as its distance x from the nearer end: x is where all digits are.
template <typename Real>
struct NoiseUniform {
  Real x;
  bool upper;  // x = 1 - u
};

// words nearer to an end than this have a further word
inline constexpr uint32_t kNoiseEnd = 1u << 16;

VEIL_HOST_DEVICE uint32_t noise_from_end(uint32_t word) {
  return word ^ (0u - (word >> 31));
}
// u = (word + 1/2) / 2^32: the middle of its interval.
template <typename Real>
VEIL_HOST_DEVICE NoiseUniform<Real> noise_uniform(uint32_t word) {
  constexpr auto kUnit = static_cast<Real>(2.3283064365386963e-10);  // 2^-32
  return {static_cast<Real>(noise_from_end(word)) * kUnit + kUnit / 2, word >> 31 != 0};
}
// u = (word 2^32 + further + 1/2) / 2^64, for a word at an end.
template <typename Real>
VEIL_HOST_DEVICE NoiseUniform<Real> noise_uniform(uint32_t word, uint32_t further) {
  constexpr auto kUnit = static_cast<Real>(2.3283064365386963e-10),
                 kFine = static_cast<Real>(5.421010862427522e-20);
  const uint32_t fine = further ^ (0u - (word >> 31));
  return {static_cast<Real>(noise_from_end(word)) * kUnit +
              (static_cast<Real>(fine) * kFine + kFine / 2),
          word >> 31 != 0};
}

// -ln u.
VEIL_HOST_DEVICE double noise_exponential(NoiseUniform<double> u) {
  return u.upper ? -log1p(-u.x) : -log(u.x);
}

// The same in fp32, without a branch. With u = m 2^e and s = (1 - m) / (1 + m), -ln u = 2 artanh(s)
// - e ln 2; m lies in [3/4, 3/2), or is u itself with e = 0 in the upper half, where 1 - m needs no
// subtraction.
VEIL_HOST_DEVICE float noise_exponential(NoiseUniform<float> u) {
  const float x = u.x;
  const bool upper = u.upper;
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
  float inverse;  // nothing here is ever subnormal
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(2.0f - away));
  const float s = away * inverse;
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
VEIL_HOST_DEVICE Real noise_radius(NoiseUniform<Real> u) {
  const Real doubled = 2 * noise_exponential(u);
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Real) == 4) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(doubled));
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

// The cosine and sine of `word` / 2^32 of a turn. Whole quarters are taken off first, as integers,
// so that the rest is small and exact.
template <typename Real>
VEIL_HOST_DEVICE void noise_direction(uint32_t word, Real& cosine, Real& sine) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;             // the nearest
  const auto rest = static_cast<int32_t>(word - (quarter << 30));  // an eighth of a turn at most
  Real c, s;
  // 2 pi / 2^32
  eighth_turn(static_cast<Real>(rest) * static_cast<Real>(1.4629180792671596e-9), c, s);
  cosine = quarter & 1 ? s : c;
  sine = quarter & 1 ? c : s;
  if (((quarter + 1) & 2) != 0) cosine = -cosine;
  if ((quarter & 2) != 0) sine = -sine;
}

template <typename Real>
struct NoiseGroup {
  Real value[kNoiseGroup];
};

VEIL_HOST_DEVICE bool noise_needs_further_words(const ChaChaBlock& block) {
  bool needs = false;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int pair = 0; pair < kNoiseGroup / 2; ++pair)
    needs = needs || noise_from_end(block.word[2 * pair]) < kNoiseEnd;
  return needs;
}

// The normals of a block's words, in Real's arithmetic. `further` may be null where it is not
// needed.
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_normals(const ChaChaBlock& block,
                                                const ChaChaBlock* further) {
  NoiseGroup<Real> result;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int pair = 0; pair < kNoiseGroup / 2; ++pair) {
    const uint32_t word = block.word[2 * pair];
    const bool fine = further && noise_from_end(word) < kNoiseEnd;
    const Real radius = noise_radius(fine ? noise_uniform<Real>(word, further->word[2 * pair])
                                          : noise_uniform<Real>(word));
    Real cosine, sine;
    noise_direction<Real>(block.word[2 * pair + 1], cosine, sine);
    result.value[2 * pair] = radius * cosine;
    result.value[2 * pair + 1] = radius * sine;
  }
  return result;
}

template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_group(NoiseGenerator generator, const ChaChaKey& key,
                                              uint64_t step, uint32_t parameter, uint64_t group) {
  const ChaChaBlock block = noise_words(generator, key, step, parameter, group);
  if (!noise_needs_further_words(block)) return noise_normals<Real>(block, nullptr);
  const ChaChaBlock further = noise_words(generator, key, step, parameter, group, /*further=*/true);
  return noise_normals<Real>(block, &further);
}

}  // namespace veil
