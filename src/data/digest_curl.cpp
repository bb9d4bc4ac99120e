#include <openssl/evp.h>

#include "base/error.h"
#include "data/digest.h"

namespace veil {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Digest::Digest(DigestKind kind, int64_t length) : state_(std::make_unique<State>()) {
  const EVP_MD* const algorithm = kind == DigestKind::sha256 ? EVP_sha256() : EVP_sha1();
  VEIL_CHECK(state_->context && EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1, "OpenSSL has no such sum");
  if (kind == DigestKind::git_blob) {
    std::string title = fmt::format("blob {}", length);
    title += '\0';
    add(title);
  }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::string_view bytes) {
  VEIL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "OpenSSL stopped summing");
}

std::string Digest::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  VEIL_CHECK(EVP_DigestFinal_ex(state_->context, sum, &length) == 1, "OpenSSL stopped summing");
  std::string result;
  for (unsigned i = 0; i < length; ++i) result += fmt::format("{:02x}", sum[i]);
  return result;
}

}  // namespace veil
