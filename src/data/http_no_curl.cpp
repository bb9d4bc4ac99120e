#include "base/error.h"
#include "data/http.h"

namespace veil {

namespace {

[[noreturn]] void missing() {
  throw MissingBackend(
      "this build has no libcurl, so it cannot fetch: `apt-get install libcurl4-openssl-dev "
      "libssl-dev`, then `make "
      "clean build`");
}

}  // namespace

struct HttpClient::State {};

bool built_with_http() {
  return false;
}

std::string http_library_version() {
  return "";
}

HttpClient::HttpClient(int, const std::string&) {
  missing();
}
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::head(const std::string&, const Headers&) {
  missing();
}

HttpAnswer HttpClient::get(const std::string&, const Headers&) {
  missing();
}

HttpAnswer HttpClient::download(const std::string&, const Headers&,
                                const std::function<void(const HttpAnswer&)>&,
                                const std::function<void(std::string_view)>&) {
  missing();
}

std::string url_origin(const std::string&) {
  missing();
}

std::string resolve_url(const std::string&, const std::string&) {
  missing();
}

struct Digest::State {};

Digest::Digest(DigestKind, int64_t) {
  throw MissingBackend(
      "this build has no OpenSSL, so it checks no sums: `apt-get install libcurl4-openssl-dev "
      "libssl-dev`, then `make "
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
