// Checksums by which a hub names its files. A build without OpenSSL (it comes and goes with libcurl) throws MissingBackend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace veil {

enum class DigestKind { sha256, git_blob };  // git_blob: the SHA-1 of "blob LENGTH\0" and the content

class Digest {
 public:
  // `length` is the content's, which git's checksum takes in first.
  Digest(DigestKind kind, int64_t length);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  void add(std::string_view bytes);
  std::string hex();  // of all that was added; ends the digest

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace veil
