// A run's secret and nonce: where its noise and its draws come from (kernels/stream_key.h). Never
// printed, never recorded; the secret is in a file that only its owner reads.
#pragma once

#include <string>
#include <string_view>

#include "kernels/stream_key.h"

namespace veil::privacy {

// From the operating system.
RunSecret draw_secret();
RunNonce draw_nonce();

// 32 bytes as they are, or 64 hexadecimal digits. UserError if it is neither, or if anyone
// but its owner may read it. What it holds is in no message.
RunSecret read_secret(const std::string& path);
// As 64 digits, for its owner only.
void write_secret(const std::string& path, const RunSecret& secret);

std::string hex(const uint8_t* bytes, size_t count);
// Whether `text` is exactly `count` bytes in hexadecimal digits; `bytes` is set if it is.
bool from_hex(std::string_view text, uint8_t* bytes, size_t count);

// 128 bits that depend on the secret and on everything added, in its order: the cascade of
// stream_key.h over 16-byte blocks, with lengths before and an end behind, so that no input begins
// another (Bellare, Canetti and Krawczyk 1996). Equal tags mean equal input; a tag says nothing of
// the secret or of what was added to those who lack the secret.
class SecretTag {
 public:
  SecretTag(const RunSecret& secret, std::string_view purpose);
  void add(std::string_view bytes);
  void add(uint64_t number);
  RunNonce value() const;

 private:
  void block(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    state_ = hchacha20(state_, a, b, c, d);
  }
  ChaChaKey state_ = {};
};

// Tells two secrets apart and nothing else: 16 digits.
std::string fingerprint(const RunSecret& secret);

}  // namespace veil::privacy
