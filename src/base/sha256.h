// SHA-256 (FIPS 180-4), in every build: what must not collide even for someone who tries is
// compared by it. The processor's own instructions are used if it has them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace veil {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  // `portable`: without the processor's own instructions; the digest is the same.
  explicit Sha256(bool portable = false);
  void add(std::string_view bytes);
  // A digest or a number on its own: eight bytes, low ones first.
  void add(const Sha256Digest& digest);
  void add(uint64_t number);
  Sha256Digest digest();  // of all that was added; call it once

 private:
  using Compress = void (*)(uint32_t* state, const uint8_t* blocks, size_t count);
  Compress compress_;
  uint32_t state_[8];
  uint8_t rest_[64];  // what does not fill a block yet
  uint64_t bytes_ = 0;
};

Sha256Digest sha256(std::string_view bytes);
std::string digest_text(const Sha256Digest& digest);  // 64 hexadecimal digits

// The digest of `count` digests in their order. They are computed on several threads (0: one per
// core); what `of` throws is passed on, the first by place.
Sha256Digest digest_of_parts(int64_t count, const std::function<Sha256Digest(int64_t part)>& of,
                             int threads = 0);
// Of bytes in memory, cut into pieces of 1 MiB that are hashed on several threads.
Sha256Digest digest_of_memory(std::string_view bytes);

}  // namespace veil
