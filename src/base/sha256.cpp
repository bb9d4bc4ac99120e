#include "base/sha256.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/sha256_constants.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace veil {
namespace {

constexpr size_t kShaBlock = 64, kShaPiece = size_t{1} << 20;

uint32_t rotated(uint32_t word, int bits) {
  return word >> bits | word << (32 - bits);
}

void compress_portable(uint32_t* state, const uint8_t* blocks, size_t count) {
  for (; count > 0; --count, blocks += kShaBlock) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t)
      w[t] = uint32_t{blocks[4 * t]} << 24 | uint32_t{blocks[4 * t + 1]} << 16 |
             uint32_t{blocks[4 * t + 2]} << 8 | uint32_t{blocks[4 * t + 3]};
    for (int t = 16; t < 64; ++t) {
      const uint32_t a = w[t - 15], b = w[t - 2];
      w[t] = w[t - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[t - 7] +
             (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    uint32_t s[8];
    std::copy(state, state + 8, s);
    // Instead of moving the state by one place in each round, its names move.
    for (int t = 0; t < 64; t += 8) {
      for (int i = 0; i < 8; ++i) {
        const auto at = [&](int place) -> uint32_t& { return s[(place - i + 8) % 8]; };
        const uint32_t a = at(0), e = at(4);
        at(7) += (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & at(5)) ^ (~e & at(6))) +
                 kShaRound[t + i] + w[t + i];
        at(3) += at(7);
        at(7) += (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
                 ((a & at(1)) ^ (a & at(2)) ^ (at(1) & at(2)));
      }
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#ifdef __x86_64__

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  const bool shuffles = (c >> 9 & 1) && (c >> 19 & 1);  // SSSE3 and SSE4.1
  return shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

// The instructions keep the state as (A, B, E, F) and (C, D, G, H), and do two rounds each.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_x86(uint32_t* state,
                                                              const uint8_t* blocks, size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* const stored = reinterpret_cast<__m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(stored), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(stored + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; count > 0; --count, blocks += kShaBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), swap);
    for (int i = 0; i < 16; ++i) {
      const __m128i sum = _mm_add_epi32(
          w[i % 4], _mm_loadu_si128(reinterpret_cast<const __m128i*>(kShaRound + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (i >= 12) continue;
      const __m128i last = w[(i + 3) % 4];
      const __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
                                         _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
      w[i % 4] = _mm_sha256msg2_epu32(next, last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(stored, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(stored + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#endif

}  // namespace

Sha256::Sha256(bool portable) : compress_(compress_portable) {
  std::copy(std::begin(kShaStart), std::end(kShaStart), state_);
#ifdef __x86_64__
  static const bool fast = has_sha_instructions();
  if (fast && !portable) compress_ = compress_x86;
#else
  (void)portable;
#endif
}

void Sha256::add(std::string_view bytes) {
  if (bytes.empty()) return;
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  const size_t filled = bytes_ % kShaBlock;
  bytes_ += left;
  if (filled > 0) {
    const size_t taken = std::min(left, kShaBlock - filled);
    std::memcpy(rest_ + filled, data, taken);
    if (filled + taken < kShaBlock) return;
    compress_(state_, rest_, 1);
    data += taken;
    left -= taken;
  }
  compress_(state_, data, left / kShaBlock);
  if (left % kShaBlock > 0)
    std::memcpy(rest_, data + left / kShaBlock * kShaBlock, left % kShaBlock);
}

void Sha256::add(const Sha256Digest& digest) {
  add(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

void Sha256::add(uint64_t number) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  add(std::string_view(bytes, sizeof bytes));
}

Sha256Digest Sha256::digest() {
  const uint64_t bits = 8 * bytes_;
  std::string padding(1, '\x80');
  padding.append((2 * kShaBlock - 9 - bytes_ % kShaBlock) % kShaBlock, '\0');
  for (int i = 7; i >= 0; --i) padding += static_cast<char>(bits >> (8 * i));
  add(padding);
  Sha256Digest result;
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return result;
}

Sha256Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.digest();
}

std::string digest_text(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

Sha256Digest digest_of_parts(int64_t count, const std::function<Sha256Digest(int64_t)>& of,
                             int threads) {
  std::vector<Sha256Digest> digests(static_cast<size_t>(count));
  std::vector<std::exception_ptr> failed(static_cast<size_t>(count));
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t part = next++; part < count; part = next++) {
      try {
        digests[static_cast<size_t>(part)] = of(part);
      } catch (...) {
        failed[static_cast<size_t>(part)] = std::current_exception();
      }
    }
  };
  const int64_t wanted =
      threads > 0 ? threads : static_cast<int64_t>(std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min(wanted, count); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : failed) {
    if (error) std::rethrow_exception(error);
  }
  Sha256 all;
  all.add(static_cast<uint64_t>(count));
  for (const Sha256Digest& digest : digests) all.add(digest);
  return all.digest();
}

Sha256Digest digest_of_memory(std::string_view bytes) {
  Sha256 all;
  all.add(static_cast<uint64_t>(bytes.size()));
  all.add(digest_of_parts(
      static_cast<int64_t>((bytes.size() + kShaPiece - 1) / kShaPiece), [&](int64_t piece) {
        return sha256(bytes.substr(static_cast<size_t>(piece) * kShaPiece, kShaPiece));
      }));
  return all.digest();
}

}  // namespace veil
