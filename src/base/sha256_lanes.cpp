#include "base/sha256_lanes.h"

#include <algorithm>

#include "base/error.h"
#include "base/sha256_constants.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace veil {

#ifdef __x86_64__

namespace {

#define VEIL_LANES __attribute__((target("avx512f,avx512bw")))
// GCC 12 warns of what its own header leaves undefined on purpose (GCC bug 105593).
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Row i holds 64 bytes of message i; afterwards row i holds word i of every message.
VEIL_LANES void transpose(__m512i* rows) {
  __m512i pairs[16], quads[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // quads[4 b + c]: word c of each quarter, of messages 4 b to 4 b + 3
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
    rows[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    rows[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    rows[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    rows[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
}

// The truth tables of vpternlog: a ^ b ^ c, "b if a, else c", and the majority.
constexpr int kXor = 0x96, kChoose = 0xca, kMajority = 0xe8;

VEIL_LANES void compress_lanes(uint32_t (*state)[16], const char* const* messages, size_t at) {
  const __m512i swap =
      _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);  // within each word
  __m512i w[16], s[8];
  for (int i = 0; i < 16; ++i) w[i] = _mm512_loadu_si512(messages[i] + at);
  transpose(w);
  for (__m512i& word : w) word = _mm512_shuffle_epi8(word, swap);
  for (int i = 0; i < 8; ++i) s[i] = _mm512_load_si512(state[i]);
#pragma GCC unroll 64
  for (int t = 0; t < 64; ++t) {
    __m512i& word = w[t % 16];
    if (t >= 16) {
      const __m512i a = w[(t + 1) % 16], b = w[(t + 14) % 16];
      const __m512i low = _mm512_ternarylogic_epi32(_mm512_ror_epi32(a, 7), _mm512_ror_epi32(a, 18),
                                                    _mm512_srli_epi32(a, 3), kXor);
      const __m512i high = _mm512_ternarylogic_epi32(
          _mm512_ror_epi32(b, 17), _mm512_ror_epi32(b, 19), _mm512_srli_epi32(b, 10), kXor);
      word = _mm512_add_epi32(_mm512_add_epi32(word, low), _mm512_add_epi32(w[(t + 9) % 16], high));
    }
    // Instead of moving the state by one place in each round, its names move.
    const auto place = [t](int name) { return (name - t + 64) % 8; };
    const __m512i a = s[place(0)], e = s[place(4)];
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11),
                                                   _mm512_ror_epi32(e, 25), kXor);
    const __m512i choice = _mm512_ternarylogic_epi32(e, s[place(5)], s[place(6)], kChoose);
    const __m512i constant = _mm512_set1_epi32(static_cast<int>(kShaRound[t]));
    const __m512i first =
        _mm512_add_epi32(_mm512_add_epi32(s[place(7)], _mm512_add_epi32(word, constant)),
                         _mm512_add_epi32(high, choice));
    const __m512i low = _mm512_ternarylogic_epi32(_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13),
                                                  _mm512_ror_epi32(a, 22), kXor);
    const __m512i majority = _mm512_ternarylogic_epi32(a, s[place(1)], s[place(2)], kMajority);
    s[place(3)] = _mm512_add_epi32(s[place(3)], first);
    s[place(7)] = _mm512_add_epi32(first, _mm512_add_epi32(low, majority));
  }
  for (int i = 0; i < 8; ++i)
    _mm512_store_si512(state[i], _mm512_add_epi32(s[i], _mm512_load_si512(state[i])));
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#undef VEIL_LANES

}  // namespace

bool Sha256Lanes::available() {
  static const bool known = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return known;
}

#else

bool Sha256Lanes::available() {
  return false;
}

#endif

Sha256Lanes::Sha256Lanes() {
  for (int i = 0; i < 8; ++i) std::fill(state_[i], state_[i] + kLanes, kShaStart[i]);
}

void Sha256Lanes::add(const std::array<const char*, kLanes>& messages, size_t blocks) {
#ifdef __x86_64__
  for (size_t block = 0; block < blocks; ++block)
    compress_lanes(state_, messages.data(), block * kBlock);
  bytes_ += blocks * kBlock;
#else
  VEIL_CHECK(false, "{} lanes of {} and {} blocks", messages.size(), bytes_, blocks);
#endif
}

std::array<Sha256Digest, Sha256Lanes::kLanes> Sha256Lanes::digests() {
  char padding[kBlock] = {'\x80'};
  const uint64_t bits = 8 * bytes_;
  for (size_t i = 0; i < 8; ++i) padding[kBlock - 1 - i] = static_cast<char>(bits >> (8 * i));
  std::array<const char*, kLanes> same;
  same.fill(padding);
  add(same, 1);
  std::array<Sha256Digest, kLanes> result;
  for (size_t lane = 0; lane < result.size(); ++lane) {
    for (size_t i = 0; i < result[lane].size(); ++i)
      result[lane][i] = static_cast<uint8_t>(state_[i / 4][lane] >> (24 - 8 * (i % 4)));
  }
  return result;
}

}  // namespace veil
