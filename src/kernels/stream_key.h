// The keys of a run's random streams, derived on the host from what must stay secret.
//
// Two steps of HChaCha20, each a pseudorandom function keyed by 256 bits: run = H(secret, nonce),
// key = H(run, domain). This is the cascade that XChaCha20 rests on. Without the secret no key can
// be told from a random one, and keys of other nonces or domains say nothing about it; so a stream
// that leaks (say, the rounding's) leaves the noise and the sampling secret, and one secret serves
// many runs as long as no nonce comes twice. No library is needed for it. The secret must itself be
// uniformly random (32 bytes from the operating system): nothing here stretches a password.
#pragma once

#include <array>

#include "kernels/chacha.h"

namespace veil {

using RunSecret = std::array<uint8_t, 32>;
using RunNonce = std::array<uint8_t, 16>;

// What a stream is for. Numbers are kept in checkpoints' meaning: never give one to something else.
enum class KeyDomain : uint32_t {
  noise = 1,
  sampling = 2,
  clip_count = 3,
  rounding = 4,
  draws = 5,
  canary_coins = 6
};

// Four bytes, lowest first.
inline uint32_t word_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

inline ChaChaKey derive_key(const RunSecret& secret, const RunNonce& nonce, KeyDomain domain) {
  ChaChaKey key;
  for (int i = 0; i < 8; ++i) key.word[i] = word_at(secret.data() + 4 * i);
  key = hchacha20(key, word_at(nonce.data()), word_at(nonce.data() + 4), word_at(nonce.data() + 8),
                  word_at(nonce.data() + 12));
  // "veil/key/v1"
  return hchacha20(key, static_cast<uint32_t>(domain), 0x6C696576u, 0x79656B2Fu, 0x0031762Fu);
}

}  // namespace veil
