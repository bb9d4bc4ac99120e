// The normals of privacy noise, shared by the CPU reference and the CUDA kernel.
//
// Element e of parameter p at step t has one value z(t, p, e) under a key, whoever asks for it.
// Elements 16 g to 16 g + 15 are a group: one block of 16 random words makes its eight pairs by
// Box-Muller, one word for each radius and one for each angle.
//
// fp32: a radius whose word lies within 2^16 of either end, in the tail or next to 0, gets a second
// word from a further block; one group in 4096 has such a pair. So radii reach 9.49, where 24 bits
// end at 5.77 and 32 at 6.66: the tails that epsilon counts on are there.
//
// fp64: every radius and every angle has 64 bits, the lower halves from the further block. With 32
// bits exp(-r^2 / 2) 2^32 is a half-integer for every true pair, and fp64 is fine enough to tell
// that from a pair with the wrong sum subtracted.
//
// Hardened against floating-point attacks (Mironov 2012; Jin et al. 2022; Haney et al. 2022), in
// two ways:
// - The normal is a weighted sum of two independent draws (Holohan and Braghin 2021), the second
//   from Philox under 192 secret bits of its own. One fp32 pair of a single draw has some 2^52
//   outcomes for 2^48 representable neighbours, so some of those are never hit; a sum has 2^104.
//   The weights are unequal because the second draw only has to blur the first one's grid: if it
//   were predictable, 99 % of the deviation would still be ChaCha20's.
// - The sum of gradient and noise is rounded to a lattice that depends on the deviation alone
//   (noise_snapped): the last bits of a floating-point sum tell the size of its terms.
#pragma once

#include <cmath>

#include "kernels/chacha.h"

namespace veil {

// secure: ChaCha20 with all 256 bits of the key, one draw. hardened: the same with a second draw
// and a lattice (above). philox: for speed comparisons; its key has 64 bits, and it was not made to
// withstand anybody.
enum class NoiseGenerator { secure, philox, hardened };

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

// What Philox is keyed by: its key of two words, and four that its counter is combined with.
struct PhiloxSecret {
  uint32_t word[6];
};

// Of the generator philox, which has no more than 64 bits.
VEIL_HOST_DEVICE PhiloxSecret noise_philox_secret(const ChaChaKey& key) {
  return {key.word[0], key.word[1]};
}

// What one of a block's four calls of Philox gets. Counters of different blocks differ.
struct PhiloxInput {
  uint64_t key, low, high;
};
VEIL_HOST_DEVICE PhiloxInput noise_philox_input(const PhiloxSecret& secret, uint64_t step,
                                                uint32_t parameter, uint64_t group, bool further,
                                                uint32_t call) {
  const auto two = [&](int i) { return uint64_t{secret.word[i + 1]} << 32 | secret.word[i]; };
  const uint64_t low = (group * 4 + call) | (further ? uint64_t{1} << 47 : 0) | (step >> 32) << 48;
  const uint64_t high = uint64_t{parameter} << 32 | static_cast<uint32_t>(step);
  return {two(0), low ^ two(2), high ^ two(4)};
}
VEIL_HOST_DEVICE ChaChaBlock noise_philox_words(const PhiloxSecret& secret, uint64_t step,
                                                uint32_t parameter, uint64_t group, bool further) {
  ChaChaBlock block;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (uint32_t call = 0; call < 4; ++call) {
    const PhiloxInput of = noise_philox_input(secret, step, parameter, group, further, call);
    const Philox4 four = philox4x32(of.key, of.low, of.high);
    for (int i = 0; i < 4; ++i) block.word[4 * call + i] = four.word[i];
  }
  return block;
}

// ChaCha20's input. Counters of different blocks differ.
VEIL_HOST_DEVICE ChaChaBlock noise_chacha_input(const ChaChaKey& key, uint64_t step,
                                                uint32_t parameter, uint64_t group, bool further) {
  const auto high =
      static_cast<uint32_t>(group >> 32 | (further ? 1u << 15 : 0) | (step >> 32) << 16);
  return chacha_input(key, static_cast<uint32_t>(group), high, static_cast<uint32_t>(step),
                      parameter);
}

// 16 words, a function of (key, step, parameter, group, whether further ones are requested).
VEIL_HOST_DEVICE ChaChaBlock noise_words(NoiseGenerator generator, const ChaChaKey& key,
                                         uint64_t step, uint32_t parameter, uint64_t group,
                                         bool further = false) {
  if (generator != NoiseGenerator::philox)
    return chacha20(noise_chacha_input(key, step, parameter, group, further));
  return noise_philox_words(noise_philox_secret(key), step, parameter, group, further);
}

// The words of the second draw of hardened noise.
VEIL_HOST_DEVICE ChaChaBlock noise_second_words(const PhiloxSecret& second, uint64_t step,
                                                uint32_t parameter, uint64_t group, bool further) {
  return noise_philox_words(second, step, parameter, group, further);
}

// Its secret, derived on the host by ChaCha20's key function ("veil/noise/2nd"): nothing that Philox
// might give away of it leads back to the first draw's key.
inline PhiloxSecret noise_second_secret(const ChaChaKey& key) {
  const ChaChaKey derived = hchacha20(key, 0x6C696576u, 0x696F6E2Fu, 0x322F6573u, 0x0000646Eu);
  PhiloxSecret secret;
  for (int i = 0; i < 6; ++i) secret.word[i] = derived.word[i];
  return secret;
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
// noise_from_end(word) < kNoiseEnd, in one addition.
VEIL_HOST_DEVICE bool noise_at_end(uint32_t word) {
  return word + kNoiseEnd < 2 * kNoiseEnd;
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

// The same bits as another type: std::bit_cast, which device code cannot call.
template <typename To, typename From>
VEIL_HOST_DEVICE To noise_cast(From value) {
  return __builtin_bit_cast(To, value);
}

// The same in fp32, without a branch. With u = m 2^e and s = (1 - m) / (1 + m), -ln u = 2 artanh(s)
// - e ln 2; m lies in [3/4, 3/2), or is u itself with e = 0 in the upper half, where 1 - m needs no
// subtraction.
VEIL_HOST_DEVICE float noise_exponential(NoiseUniform<float> u) {
  const float x = u.x;
  const bool upper = u.upper;
  const uint32_t pattern = noise_cast<uint32_t>(x);
  const int32_t exponent = upper ? 0 : static_cast<int32_t>(pattern - 0x3F400000u) >> 23;
  const float m = noise_cast<float>(pattern - (static_cast<uint32_t>(exponent) << 23));
  const float away = upper ? x : 1.0f - m;  // 1 - m
  const float s = away / (2.0f - away);
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
  using std::sqrt;
  return sqrt(2 * noise_exponential(u));
}
// That of u = (word + 1/2) / 2^32.
template <typename Real>
VEIL_HOST_DEVICE Real noise_radius(uint32_t word) {
  return noise_radius(noise_uniform<Real>(word));
}
#ifdef __CUDA_ARCH__
// The same in the fewest instructions, which bound an update with noise: three units in the last
// place off at most, if the quick reciprocal and root were exact. With u = m 2^-e and m in [1/2, 1),
// -2 ln u = 4 artanh(s) + 2 e ln 2, where s = (1 - m) / (1 + m). The word shifted to the top is m,
// and as a signed number m - 1, of which no digit is lost however small it is. `word` is not 0: that
// is next to an end. Where e > 0 the half is counted twice, 2^-32 of u at most.
template <>
__device__ __forceinline__ float noise_radius<float>(uint32_t word) {
  uint32_t zeros;  // e
  asm("bfind.shiftamt.u32 %0, %1;" : "=r"(zeros) : "r"(word));
  const auto top = static_cast<int32_t>(__funnelshift_l(1u << 31, word, zeros));
  const float away = fmaf(static_cast<float>(top), -0x1p-32f, -0x1p-33f);  // 1 - m
  float inverse;  // nothing here is ever subnormal
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(fmaf(away, -0.25f, 0.5f)));
  const float s = away * inverse, z = s * s;  // 4 s and 16 s^2
  // (artanh(s) / s - 1) / s^2 for s up to 1/3 by the minimax polynomial: 2^-27 of artanh(s) at most
  float series = 2.13714501e-6f;
  series = fmaf(series, z, 3.41818911e-5f);
  series = fmaf(series, z, 7.81670454e-4f);
  series = fmaf(series, z, 2.08332551e-2f);
  const float doubled = fmaf(s, fmaf(series, z, 1.0f),
                             static_cast<float>(static_cast<int>(zeros)) * 1.3862943611198906f);
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(doubled));
  return root;
}
#endif

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
  even = even * z - 0.5f;
  cosine = even * z + 1.0f;
}

// -value if bit 31 of `word` is set.
VEIL_HOST_DEVICE float negated_by(float value, uint32_t word) {
  return noise_cast<float>(noise_cast<uint32_t>(value) ^ (word & 1u << 31));
}
VEIL_HOST_DEVICE double negated_by(double value, uint32_t word) {
  return word >> 31 ? -value : value;
}

// Not fused with an addition that follows: noise has the same bits wherever it is added.
VEIL_HOST_DEVICE float noise_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
VEIL_HOST_DEVICE double noise_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// `radius` times the cosine and the sine of `word` / 2^32 of a turn. Whole quarters are taken off
// first, as integers, so that the rest is small and exact.
template <typename Real>
VEIL_HOST_DEVICE void noise_pair(Real radius, uint32_t word, Real& first, Real& second) {
  const uint32_t nearest = word + 0x20000000u;        // the nearest quarter is in the top two bits
  const auto rest = static_cast<int32_t>(word << 2);  // from it, an eighth of a turn at most
  Real c, s;
  // 2 pi / 2^34
  eighth_turn(static_cast<Real>(rest) * static_cast<Real>(3.657295198167899e-10), c, s);
  const bool odd = (nearest & 1u << 30) != 0;
  const Real turned = negated_by(radius, nearest);  // by the half that is in two quarters or three
  first = noise_product(turned, odd ? -s : c);
  second = noise_product(turned, odd ? c : s);
}
// Of `word` / 2^64 of a turn.
VEIL_HOST_DEVICE void noise_pair(double radius, uint64_t word, double& first, double& second) {
  const uint64_t nearest = word + (uint64_t{1} << 61);
  const auto rest = static_cast<int64_t>(word << 2);
  double c, s;
  // 2 pi / 2^66
  eighth_turn(static_cast<double>(rest) * 8.5153039502163862e-20, c, s);
  const bool odd = (nearest >> 62 & 1) != 0;
  const double turned = nearest >> 63 != 0 ? -radius : radius;
  first = noise_product(turned, odd ? -s : c);
  second = noise_product(turned, odd ? c : s);
}

template <typename Real>
struct NoiseGroup {
  Real value[kNoiseGroup];
};

VEIL_HOST_DEVICE bool noise_needs_further_words(const ChaChaBlock& block) {
#ifdef __CUDA_ARCH__
  // noise_at_end of any radius, by the instruction that adds and compares
  uint32_t least = ~0u;
#pragma unroll
  for (int pair = 0; pair < kNoiseGroup / 2; ++pair)
    least = __viaddmin_u32(block.word[2 * pair], kNoiseEnd, least);
  return least < 2 * kNoiseEnd;
#else
  bool needs = false;
  for (int pair = 0; pair < kNoiseGroup / 2; ++pair)
    needs = needs || noise_at_end(block.word[2 * pair]);
  return needs;
#endif
}

// The normals of a block's words, times `deviation`, in Real's arithmetic. In fp32 `further` may be
// null if it is not needed; fp64 always needs it.
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_normals(const ChaChaBlock& block,
                                                const ChaChaBlock* further, Real deviation = 1) {
  NoiseGroup<Real> result;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int pair = 0; pair < kNoiseGroup / 2; ++pair) {
    const uint32_t word = block.word[2 * pair], turn = block.word[2 * pair + 1];
    Real &first = result.value[2 * pair], &second = result.value[2 * pair + 1];
    if constexpr (sizeof(Real) == 8) {
      const Real radius = noise_radius(noise_uniform<Real>(word, further->word[2 * pair]));
      noise_pair(radius * deviation, uint64_t{turn} << 32 | further->word[2 * pair + 1], first,
                 second);
    } else {
      const bool fine = further && noise_at_end(word);
      const Real radius = fine ? noise_radius(noise_uniform<Real>(word, further->word[2 * pair]))
                               : noise_radius<Real>(word);
      noise_pair(radius * deviation, turn, first, second);
    }
  }
  return result;
}

// A single draw, times `deviation`; of hardened noise the first.
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_draw(NoiseGenerator generator, const ChaChaKey& key,
                                             uint64_t step, uint32_t parameter, uint64_t group,
                                             Real deviation = 1) {
  const ChaChaBlock block = noise_words(generator, key, step, parameter, group);
  if (sizeof(Real) == 4 && !noise_needs_further_words(block))
    return noise_normals<Real>(block, nullptr, deviation);
  const ChaChaBlock further = noise_words(generator, key, step, parameter, group, /*further=*/true);
  return noise_normals<Real>(block, &further, deviation);
}
// The second draw of hardened noise. In fp32 it needs no further words and no last digits: it is added
// with a small weight, to blur the first. The device's quick functions are good to 2^-20 here.
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_second_normals(const ChaChaBlock& block,
                                                       const ChaChaBlock* further) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Real) == 4) {
    NoiseGroup<Real> result;
#pragma unroll
    for (int pair = 0; pair < kNoiseGroup / 2; ++pair) {
      const float u = fmaf(static_cast<float>(block.word[2 * pair]), 0x1p-32f, 0x1p-33f);
      // sqrt(-2 ln u)
      const float twice = __log2f(u) * -1.3862943611198906f;
      float radius;
      asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(twice));
      // The signed word: half a turn to either side.
      const float angle = static_cast<float>(static_cast<int32_t>(block.word[2 * pair + 1])) *
                          1.4629180792671596e-9f;
      result.value[2 * pair] = radius * __cosf(angle);
      result.value[2 * pair + 1] = radius * __sinf(angle);
    }
    return result;
  }
#endif
  return noise_normals<Real>(block, further);
}
template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_second_draw(const PhiloxSecret& second, uint64_t step,
                                                    uint32_t parameter, uint64_t group) {
  const ChaChaBlock block = noise_second_words(second, step, parameter, group, /*further=*/false);
  if constexpr (sizeof(Real) == 4) return noise_second_normals<Real>(block, nullptr);
  const ChaChaBlock further = noise_second_words(second, step, parameter, group, /*further=*/true);
  return noise_second_normals<Real>(block, &further);
}

// The two draws' weights in hardened noise; their squares add up to 1.
inline constexpr double kNoiseFirstWeight = 0.99215674164922152;  // sqrt(63) / 8
inline constexpr double kNoiseSecondWeight = 0.125;
template <typename Real>
VEIL_HOST_DEVICE Real noise_weighted(Real first, Real second) {
  return static_cast<Real>(kNoiseFirstWeight) * first +
         static_cast<Real>(kNoiseSecondWeight) * second;
}

// What a group of noise is made from.
struct NoiseKeys {
  NoiseGenerator generator;
  ChaChaKey key;
  PhiloxSecret second;  // of hardened noise
};
inline NoiseKeys noise_keys(NoiseGenerator generator, const ChaChaKey& key) {
  return {generator, key,
          generator == NoiseGenerator::hardened ? noise_second_secret(key) : PhiloxSecret{}};
}

template <typename Real>
VEIL_HOST_DEVICE NoiseGroup<Real> noise_group(const NoiseKeys& keys, uint64_t step,
                                              uint32_t parameter, uint64_t group) {
  NoiseGroup<Real> sum = noise_draw<Real>(keys.generator, keys.key, step, parameter, group);
  if (keys.generator != NoiseGenerator::hardened) return sum;
  const NoiseGroup<Real> second = noise_second_draw<Real>(keys.second, step, parameter, group);
  for (int k = 0; k < kNoiseGroup; ++k)
    sum.value[k] = noise_weighted(sum.value[k], second.value[k]);
  return sum;
}

// Hardened noise leaves multiples of L = 2^(floor(log2(deviation)) - 10), in fp64 2^(... - 30):
// thousands of times coarser than the rounding of what was added, so that rounding does not show,
// and so much finer than the noise that it costs nothing. The anchor is 1.5 2^23 L (fp64: 2^52):
// numbers around it have a spacing of L, whatever is added to it up to 4096 deviations.
VEIL_HOST_DEVICE int noise_exponent(double deviation) {
  return static_cast<int>(noise_cast<uint64_t>(deviation) >> 52 & 0x7FF) - 1023;
}
template <typename Real>
VEIL_HOST_DEVICE Real noise_anchor(double deviation) {
  const int exponent = noise_exponent(deviation);
  using std::ldexp;
  if constexpr (sizeof(Real) == 8) return ldexp(1.5, exponent - 30 + 52);
  return ldexp(1.5f, exponent - 10 + 23);
}
template <typename Real>
VEIL_HOST_DEVICE Real noise_snapped(Real value, Real anchor) {
  return (value + anchor) - anchor;
}

}  // namespace veil
