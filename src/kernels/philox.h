// Philox4x32 (Salmon et al., 2011): a counter-based generator, with ten rounds unless said; seven
// pass every test of randomness that is known. The same integers on CPU and GPU; no state, so any
// rank can make any element's number.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define VEIL_HOST_DEVICE __host__ __device__ inline
#else
#define VEIL_HOST_DEVICE inline
#endif

namespace veil {

struct Philox4 {
  uint32_t word[4];
};

// a b, both halves. The compiler does not find the one instruction for it inside Philox's rounds.
VEIL_HOST_DEVICE void wide_product(uint32_t a, uint32_t b, uint32_t& high, uint32_t& low) {
#ifdef __CUDA_ARCH__
  asm("{\n.reg .u64 p;\nmul.wide.u32 p, %2, %3;\nmov.b64 {%1, %0}, p;\n}"
      : "=r"(high), "=r"(low)
      : "r"(a), "r"(b));
#else
  const uint64_t product = uint64_t{a} * b;
  high = static_cast<uint32_t>(product >> 32);
  low = static_cast<uint32_t>(product);
#endif
}

VEIL_HOST_DEVICE void philox_round(uint32_t k0, uint32_t k1, uint32_t& c0, uint32_t& c1,
                                   uint32_t& c2, uint32_t& c3) {
  uint32_t high0, low0, high1, low1;
  wide_product(0xD2511F53u, c0, high0, low0);
  wide_product(0xCD9E8D57u, c2, high1, low1);
  c0 = high1 ^ c1 ^ k0;
  c2 = high0 ^ c3 ^ k1;
  c1 = low1;
  c3 = low0;
}

// Word: that of one counter, or of several side by side (word_lanes.h).
template <int kRounds, typename Word>
VEIL_HOST_DEVICE void philox_rounds(uint64_t key, Word& c0, Word& c1, Word& c2, Word& c3) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < kRounds; ++round) {
    philox_round(k0, k1, c0, c1, c2, c3);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

template <int kRounds = 10>
VEIL_HOST_DEVICE Philox4 philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  philox_rounds<kRounds>(key, c0, c1, c2, c3);
  return {{c0, c1, c2, c3}};
}

// Rounds fp32 to the bf16 below or above with the probability that keeps the mean; `random` needs
// 16 uniform bits. Infinities and NaN pass.
VEIL_HOST_DEVICE uint16_t round_to_bf16_stochastically(uint32_t fp32_bits, uint32_t random) {
  if ((fp32_bits & 0x7F800000u) == 0x7F800000u) {
    const uint16_t top = static_cast<uint16_t>(fp32_bits >> 16);
    return (fp32_bits & 0x007FFFFFu) ? static_cast<uint16_t>(top | 0x0040u) : top;
  }
  const uint32_t rounded = fp32_bits + (random & 0xFFFFu);
  // A carry into the exponent's last value would be infinity: the largest finite number stays.
  if ((rounded & 0x7F800000u) == 0x7F800000u) return static_cast<uint16_t>(fp32_bits >> 16);
  return static_cast<uint16_t>(rounded >> 16);
}

}  // namespace veil
