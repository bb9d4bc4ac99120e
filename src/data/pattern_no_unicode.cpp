#include "base/error.h"
#include "data/pattern.h"

namespace veil::data {

namespace {

[[noreturn]] void missing() {
  throw MissingBackend(
      "this build has no PCRE2, which a tokenizer.json needs: `apt-get install libpcre2-dev "
      "libutf8proc-dev`, then `make clean build`, or use the tokenizer `byte`");
}

}  // namespace

struct Pattern::Matching::State {};
Pattern::Matching::Matching() = default;
Pattern::Matching::~Matching() = default;
Pattern::Matching::Matching(Matching&&) noexcept = default;
Pattern::Matching& Pattern::Matching::operator=(Matching&&) noexcept = default;

struct Pattern::Compiled {};
Pattern::Pattern(const std::string&) {
  missing();
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view, size_t, Span&, Matching&) const {
  missing();
}

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  throw MissingBackend(
      "this build has no utf8proc, which this text needs for NFC: `apt-get install libpcre2-dev "
      "libutf8proc-dev`, then "
      "`make clean build`");
}

}  // namespace veil::data
