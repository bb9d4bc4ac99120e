#include "kernels/chacha.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/stream_key.h"

namespace veil {
namespace {

// The key of most of the RFC's examples: bytes 0 to 31.
ChaChaKey counting_key() {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = 0x03020100u + 0x04040404u * i;
  return key;
}

TEST(ChaCha, TheQuarterRoundIsTheStandards) {  // RFC 8439, 2.1.1
  uint32_t a = 0x11111111, b = 0x01020304, c = 0x9b8d6f43, d = 0x01234567;
  chacha_quarter_round(a, b, c, d);
  EXPECT_EQ(a, 0xea2a92f4u);
  EXPECT_EQ(b, 0xcb1cf8ceu);
  EXPECT_EQ(c, 0x4581472eu);
  EXPECT_EQ(d, 0x5881c4bbu);
}

TEST(ChaCha, BlocksAreThoseOfTheStandard) {
  struct Vector {
    ChaChaKey key;
    uint32_t counter[4], answer[16];
  };
  const Vector vectors[] = {
      {counting_key(),  // RFC 8439, 2.3.2
       {1, 0x09000000, 0x4a000000, 0},
       {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033, 0x9aaa2204,
        0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9, 0xd19c12b5, 0xb94e16de,
        0xe883d0cb, 0x4e3c50a2}},
      {{},  // RFC 8439, A.1, 1
       {0, 0, 0, 0},
       {0xade0b876, 0x903df1a0, 0xe56a5d40, 0x28bd8653, 0xb819d2bd, 0x1aed8da0, 0xccef36a8,
        0xc70d778b, 0x7c5941da, 0x8d485751, 0x3fe02477, 0x374ad8b8, 0xf4b8436a, 0x1ca11815,
        0x69b687c3, 0x8665eeb2}},
      {{},  // RFC 8439, A.1, 2
       {1, 0, 0, 0},
       {0xbee7079f, 0x7a385155, 0x7c97ba98, 0x0d082d73, 0xa0290fcb, 0x6965e348, 0x3e53c612,
        0xed7aee32, 0x7621b729, 0x434ee69c, 0xb03371d5, 0xd539d874, 0x281fed31, 0x45fb0a51,
        0x1f0ae1ac, 0x6f4d794b}},
  };
  for (const Vector& vector : vectors) {
    const uint32_t* c = vector.counter;
    const ChaChaBlock made = chacha20(vector.key, c[0], c[1], c[2], c[3]);
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(made.word[i], vector.answer[i]) << "counter " << c[0] << " word " << i;
  }
}

TEST(ChaCha, TheKeyFunctionIsXChaChas) {  // draft-irtf-cfrg-xchacha-03, 2.2.1
  const uint32_t answer[8] = {0x423b4182, 0xfe7bb227, 0x50420ed3, 0x737d878a,
                              0xd5e4f9a0, 0x53a8748a, 0x13c42ec1, 0xdcecd326};
  const ChaChaKey made = hchacha20(counting_key(), 0x09000000, 0x4a000000, 0, 0x27594131);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(made.word[i], answer[i]) << "word " << i;
}

TEST(StreamKey, EveryByteOfSecretAndNonceAndTheDomainChangeTheWholeKey) {
  std::set<uint32_t> words;
  size_t keys = 0;
  const auto add = [&](const RunSecret& secret, const RunNonce& nonce, KeyDomain domain) {
    for (const uint32_t word : derive_key(secret, nonce, domain).word) words.insert(word);
    ++keys;
  };
  add({}, {}, KeyDomain::noise);
  for (const KeyDomain domain : {KeyDomain::sampling, KeyDomain::clip_count, KeyDomain::rounding})
    add({}, {}, domain);
  for (size_t i = 0; i < 32; ++i) {
    RunSecret secret{};
    secret[i] = 1;
    add(secret, {}, KeyDomain::noise);
  }
  for (size_t i = 0; i < 16; ++i) {
    RunNonce nonce{};
    nonce[i] = 1;
    add({}, nonce, KeyDomain::noise);
  }
  EXPECT_EQ(words.size(), keys * 8);  // by chance two of these 416 words are equal once in 50,000
}

// Checkpoints hold secret and nonce only: a resumed run must find its keys again.
TEST(StreamKey, TheDerivationStaysAsItIs) {
  RunSecret secret;
  RunNonce nonce;
  for (size_t i = 0; i < 32; ++i) secret[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < 16; ++i) nonce[i] = static_cast<uint8_t>(0xF0 + i);
  // By another program.
  const uint32_t answer[8] = {0x3ebf6b5e, 0x8d6a2f11, 0xbe8e3ed2, 0xe3fb9225,
                              0x11f100c3, 0xfe2e9bea, 0x513113fd, 0x23a5b5a2};
  const ChaChaKey key = derive_key(secret, nonce, KeyDomain::noise);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(key.word[i], answer[i]) << "word " << i;
}

}  // namespace
}  // namespace veil
