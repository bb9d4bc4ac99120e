// What a tokenizer.json asks of Unicode: a pre-tokenizer's expression, written in Oniguruma's
// syntax and matched by PCRE2, and normalization form C by utf8proc's tables. A build without the
// two (VEIL_UNICODE) answers with MissingBackend.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/span.h"

namespace veil::data {

class Pattern {
 public:
  // What one thread needs to match; one Matching serves one thread at a time, any number of
  // patterns and texts.
  class Matching {
   public:
    Matching();
    ~Matching();
    Matching(Matching&&) noexcept;
    Matching& operator=(Matching&&) noexcept;

   private:
    friend class Pattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  // UserError if the expression is not understood.
  explicit Pattern(const std::string& expression);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The leftmost match that begins at `from` or later. `text` is well-formed UTF-8 and may hold
  // U+0000.
  bool find(std::string_view text, size_t from, Span& match, Matching& matching) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// Oniguruma's expression in PCRE2's words: \s and \S are Unicode's White_Space property, which
// PCRE2's \s is not quite (it has U+180E as well). UserError for a class within a class or an
// intersection, which PCRE2 does not have.
std::string to_pcre2(const std::string& expression);

// Normalization form C. `text` is well-formed UTF-8. Linear in its length apart from sorting runs
// of combining marks, n log n.
std::string to_nfc(std::string_view text);

// No character below U+0300 changes under NFC: true needs no tables, false says nothing.
bool surely_nfc(std::string_view text);

}  // namespace veil::data
