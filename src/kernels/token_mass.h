// What a token's logit is worth when one is drawn, in whole numbers: the same on every device, so
// that a seed gives the same text everywhere, and sums do not depend on their order.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/philox.h"

namespace veil {

// How a token is drawn from logits. Logits are divided by the temperature (0: the largest is
// taken); then everything below the top_k-th largest goes (0: nothing), then all but the fewest
// most likely tokens that reach top_p together.
struct DrawRule {
  float temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  // of tokens that were seen: positive logits are divided by it, others multiplied
  float repetition_penalty = 1;
};

VEIL_HOST_DEVICE float penalised(float logit, bool seen, float penalty) {
  if (!seen) return logit;
  return logit > 0 ? logit / penalty : logit * penalty;
}

// A unit of a logit, in halvings of the probability: log2(e) / temperature.
VEIL_HOST_DEVICE double halvings_per_unit(const DrawRule& rule) {
  return 1.4426950408889634 / static_cast<double>(rule.temperature);
}

// How far a logit lies below the largest, in halvings of the probability, with 32 binary places;
// from kFarBelow on nothing is left of it. Not a number: likewise.
inline constexpr int64_t kFarBelow = int64_t{64} << 32;
VEIL_HOST_DEVICE int64_t halvings_below(float largest, float logit, double halvings_per_unit) {
  // the difference of two floats is exact in fp64, and one product is rounded alike everywhere
  const double x = (static_cast<double>(largest) - static_cast<double>(logit)) * halvings_per_unit;
  return x < 64.0 ? static_cast<int64_t>(x * 4294967296.0) : kFarBelow;
}

// 2^40 2^-x: what a token weighs against the most likely one. The polynomial is the exponential's
// series, right to 2e-9.
VEIL_HOST_DEVICE uint64_t token_mass(int64_t halvings) {
  if (halvings >= kFarBelow) return 0;
  const auto whole = static_cast<int>(halvings >> 32);
  const auto part = static_cast<int32_t>((halvings & 0xFFFFFFFF) >> 1);  // 31 places
  // (-ln 2)^k / k!, 30 places
  constexpr int32_t kTerms[] = {1073741824, -744261118, 257941248, -59597083, 10327387, -1431680,
                                165394,     -16377,     1419,      -109,      8};
  int32_t sum = kTerms[10];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int k = 9; k >= 0; --k)
    sum = kTerms[k] + static_cast<int32_t>((static_cast<int64_t>(sum) * part) >> 31);
  return (static_cast<uint64_t>(sum) << 10) >> whole;
}

// Tokens are ordered by this number, 28 binary places: what differs less counts as equally likely.
VEIL_HOST_DEVICE int64_t token_rank(int64_t halvings) {
  return halvings >> 4;
}
inline constexpr int64_t kLastRank = kFarBelow >> 4;

// a b / 2^64
VEIL_HOST_DEVICE uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// The draw of one row: a number below `total`.
VEIL_HOST_DEVICE uint64_t drawn_mass(uint64_t total, uint64_t seed, int64_t sample, int64_t place) {
  const Philox4 r = philox4x32(seed, static_cast<uint64_t>(place),
                               static_cast<uint64_t>(sample) | uint64_t{7} << 61);
  return high_product(uint64_t{r.word[0]} << 32 | r.word[1], total);
}

// The mass that the most likely tokens must reach.
VEIL_HOST_DEVICE uint64_t wanted_mass(uint64_t total, double top_p) {
  const double wanted = top_p * static_cast<double>(total);
  const auto whole = static_cast<uint64_t>(wanted);
  return whole + (static_cast<double>(whole) < wanted ? 1 : 0);
}

}  // namespace veil
