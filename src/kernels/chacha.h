// ChaCha20's block function (RFC 8439) and HChaCha20 (draft-irtf-cfrg-xchacha): the same words on
// CPU and GPU.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace veil {

struct ChaChaKey {
  uint32_t word[8];
};
struct ChaChaBlock {
  uint32_t word[16];
};

VEIL_HOST_DEVICE uint32_t rotated_left(uint32_t value, int bits) {
  return value << bits | value >> (32 - bits);
}

VEIL_HOST_DEVICE void chacha_quarter_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  a += b;
  d = rotated_left(d ^ a, 16);
  c += d;
  b = rotated_left(b ^ c, 12);
  a += b;
  d = rotated_left(d ^ a, 8);
  c += d;
  b = rotated_left(b ^ c, 7);
}

// "expand 32-byte k", the key, and the four words that tell blocks apart (RFC 8439: a counter and a
// nonce of three words).
VEIL_HOST_DEVICE ChaChaBlock chacha_input(const ChaChaKey& key, uint32_t c0, uint32_t c1,
                                          uint32_t c2, uint32_t c3) {
  return {{0x61707865u, 0x3320646Eu, 0x79622D32u, 0x6B206574u, key.word[0], key.word[1],
           key.word[2], key.word[3], key.word[4], key.word[5], key.word[6], key.word[7], c0, c1, c2,
           c3}};
}

// Word: that of one block, or of several side by side (word_lanes.h).
template <typename Word>
VEIL_HOST_DEVICE void chacha_twenty_rounds(Word (&x)[16]) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < 20; round += 2) {
    chacha_quarter_round(x[0], x[4], x[8], x[12]);
    chacha_quarter_round(x[1], x[5], x[9], x[13]);
    chacha_quarter_round(x[2], x[6], x[10], x[14]);
    chacha_quarter_round(x[3], x[7], x[11], x[15]);
    chacha_quarter_round(x[0], x[5], x[10], x[15]);
    chacha_quarter_round(x[1], x[6], x[11], x[12]);
    chacha_quarter_round(x[2], x[7], x[8], x[13]);
    chacha_quarter_round(x[3], x[4], x[9], x[14]);
  }
}

VEIL_HOST_DEVICE ChaChaBlock chacha20(const ChaChaBlock& input) {
  ChaChaBlock x = input;
  chacha_twenty_rounds(x.word);
  for (int i = 0; i < 16; ++i) x.word[i] += input.word[i];
  return x;
}
VEIL_HOST_DEVICE ChaChaBlock chacha20(const ChaChaKey& key, uint32_t c0, uint32_t c1, uint32_t c2,
                                      uint32_t c3) {
  return chacha20(chacha_input(key, c0, c1, c2, c3));
}

// A pseudorandom function of 128 bits: without its key, the result for an input tells nothing about
// that for another.
VEIL_HOST_DEVICE ChaChaKey hchacha20(const ChaChaKey& key, uint32_t c0, uint32_t c1, uint32_t c2,
                                     uint32_t c3) {
  ChaChaBlock x = chacha_input(key, c0, c1, c2, c3);
  chacha_twenty_rounds(x.word);
  return {
      {x.word[0], x.word[1], x.word[2], x.word[3], x.word[12], x.word[13], x.word[14], x.word[15]}};
}

}  // namespace veil
