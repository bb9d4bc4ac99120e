// What a tokenizer.json does to a text before it is cut into pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pattern.h"
#include "data/span.h"

namespace veil::data {

// A text on its way to a tokenizer, and where its bytes come from.
struct TrackedText {
  std::string text;
  // by byte of `text`: the bytes of the original that it stands for, a whole character at least.
  // Empty if nobody asks.
  std::vector<Span> origin;
};

// `text` stands at byte `offset` of the original.
TrackedText track(std::string_view text, size_t offset);

struct NormalizerRule {
  enum class Kind { nfc, prepend, replace };
  Kind kind = Kind::nfc;
  std::string content;         // prepend: put before a text that is not empty; replace: instead
  std::string pattern = {};    // replace: what goes
  bool is_expression = false;  // `pattern` is one, otherwise a plain text
};

class Normalizer {
 public:
  explicit Normalizer(const std::vector<NormalizerRule>& rules);

  // Applies the rules in order. Origins are kept up to date if there are any. NFC maps the changed
  // part of a word to all of that part.
  void apply(TrackedText& text, Pattern::Matching& matching) const;
  // The rules leave this text as it is; false says nothing.
  bool surely_unchanged(std::string_view text) const;

 private:
  struct Rule {
    NormalizerRule what;
    std::optional<Pattern> expression;
  };
  std::vector<Rule> rules_;
};

}  // namespace veil::data
