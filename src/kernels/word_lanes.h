// Words of several blocks of ChaCha20 or Philox side by side: the loops over lanes become vector
// instructions, and every lane has the words that its block would have alone.
#pragma once

#include "kernels/chacha.h"

namespace veil {

template <int kCount>
struct WordLanes {
  uint32_t lane[kCount];
};

// GCC must not unroll these loops before it vectorises them.
template <int kCount>
inline void chacha_quarter_round(WordLanes<kCount>& a, WordLanes<kCount>& b, WordLanes<kCount>& c,
                                 WordLanes<kCount>& d) {
#pragma GCC unroll 1
  for (int l = 0; l < kCount; ++l) chacha_quarter_round(a.lane[l], b.lane[l], c.lane[l], d.lane[l]);
}

template <int kCount>
inline void philox_round(uint32_t k0, uint32_t k1, WordLanes<kCount>& c0, WordLanes<kCount>& c1,
                         WordLanes<kCount>& c2, WordLanes<kCount>& c3) {
#pragma GCC unroll 1
  for (int l = 0; l < kCount; ++l)
    philox_round(k0, k1, c0.lane[l], c1.lane[l], c2.lane[l], c3.lane[l]);
}

// ChaCha20's blocks of kCount inputs.
template <int kCount>
inline void chacha20(const ChaChaBlock (&input)[kCount], WordLanes<kCount> (&x)[16]) {
  WordLanes<kCount> given[16];
  for (int w = 0; w < 16; ++w) {
    for (int l = 0; l < kCount; ++l) given[w].lane[l] = x[w].lane[l] = input[l].word[w];
  }
  chacha_twenty_rounds(x);
  for (int w = 0; w < 16; ++w) {
    for (int l = 0; l < kCount; ++l) x[w].lane[l] += given[w].lane[l];
  }
}

}  // namespace veil
