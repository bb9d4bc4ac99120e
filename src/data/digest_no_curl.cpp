#include "base/error.h"
#include "data/digest.h"

namespace veil {

struct Digest::State {};

Digest::Digest(DigestKind, int64_t) {
  throw MissingBackend(
      "this build has no OpenSSL, so it checks no sums: `apt-get install libcurl4-openssl-dev libssl-dev`, then `make "
      "clean build`");
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
void Digest::add(std::string_view) {}
std::string Digest::hex() {
  return "";
}

}  // namespace veil
