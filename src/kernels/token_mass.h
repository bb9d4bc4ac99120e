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

// 2^-(i / 1024) with 30 binary places, for i below 1024: the exponential's series in whole numbers.
inline constexpr int kMassTable = 1024;
VEIL_HOST_DEVICE uint32_t mass_power(int i) {
  // (-ln 2)^k / k!, 50 places
  constexpr int64_t kTerms[] = {1125899906842624,
                                -780414346020670,
                                270471001806380,
                                -62492070775105,
                                10829050666279,
                                -1501225187494,
                                173428334350,
                                -17173051569,
                                1487931535,
                                -114595061,
                                7943124,
                                -500523,
                                28911};
  int64_t sum = kTerms[12];
  for (int k = 11; k >= 0; --k) sum = kTerms[k] + ((sum * i) >> 10);
  return static_cast<uint32_t>((sum + (int64_t{1} << 19)) >> 20);
}

// 2^40 2^-x: what a token weighs against the most likely one, right to 2e-9. The table of
// mass_power gives the first ten binary places of x, two terms of the series the others.
VEIL_HOST_DEVICE uint64_t token_mass(int64_t halvings, const uint32_t* table) {
  if (halvings >= kFarBelow) return 0;
  const auto part = static_cast<uint32_t>(halvings);
  const uint32_t rest = part & 0x3FFFFF;  // below 2^-10, 32 places
  // rest ln 2, 42 places: 0.6931471805599453 2^32 = 2977044472
  const auto small = static_cast<uint32_t>((uint64_t{rest} * 2977044472u) >> 22);
  const auto square = static_cast<uint32_t>((uint64_t{small} * small) >> 43);  // half of it
  const uint64_t factor = (uint64_t{1} << 42) - small + square;                // 42 places
  const uint64_t mass = uint64_t{table[part >> 22]} * (factor >> 10) >> 22;    // 40 places
  return mass >> static_cast<int>(halvings >> 32);
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
