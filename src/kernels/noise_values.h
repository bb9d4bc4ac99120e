// The normals of privacy noise, shared by the CPU reference and the CUDA kernel.
//
// Element e of parameter p at step t has one value z(t, p, e) under a key, whoever asks for it. Elements 12 g to 12 g + 11
// are a group: one block of 16 random words makes its six pairs by Box-Muller, 53 bits for each radius and 32 for each
// angle. So a radius takes 2^53 values up to 8.57, where 24 bits end at 5.77 and 32 at 6.66: the tails that epsilon counts
// on are there.
#pragma once

#include <cmath>

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

// sqrt(-2 ln u), u = (bits + 1) / 2^53 in (0, 1]. In fp32 both ends keep their digits: u is converted where it is small and
// 1 - u, an exact whole number of 2^-53, where it is not.
template <typename Real>
VEIL_HOST_DEVICE Real noise_radius(uint64_t bits) {
  using std::log, std::log1p, std::sqrt;
  constexpr uint64_t kHalf = uint64_t{1} << 52;
  constexpr Real kUnit = static_cast<Real>(1.1102230246251565e-16);  // 2^-53
  const uint64_t u = bits + 1;
  const Real log_u = u <= kHalf ? log(static_cast<Real>(u) * kUnit) : log1p(-static_cast<Real>(2 * kHalf - u) * kUnit);
  return sqrt(static_cast<Real>(-2) * log_u);
}

// The cosine and sine of `word` / 2^32 of a turn. Whole quarters are taken off first, as integers, so that the rest is small and exact.
template <typename Real>
VEIL_HOST_DEVICE void noise_direction(uint32_t word, Real& cosine, Real& sine) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;             // the nearest
  const auto rest = static_cast<int32_t>(word - (quarter << 30));  // an eighth of a turn at most
  Real c, s;
#ifdef __CUDA_ARCH__
  sincospi(static_cast<Real>(rest) * static_cast<Real>(4.656612873077393e-10), &s, &c);  // 2^-31
#else
  const Real angle = static_cast<Real>(rest) * static_cast<Real>(1.4629180792671596e-9);  // 2 pi / 2^32
  c = std::cos(angle);
  s = std::sin(angle);
#endif
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
