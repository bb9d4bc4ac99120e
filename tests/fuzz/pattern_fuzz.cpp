// A tokenizer's expression, in the first line, and the text that it is looked for in.
#include "base/utf8.h"
#include "data/pattern.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view rest = fuzz::text_of(data, size);
  const std::string expression(fuzz::take_line(rest));
  const std::string text = repair_utf8(rest);
  fuzz::allow_user_error([&] {
    const data::Pattern pattern(expression);
    data::Pattern::Matching matching;
    data::Span match;
    for (size_t from = 0; from <= text.size() && pattern.find(text, from, match, matching);) {
      fuzz::require(from <= match.begin && match.begin <= match.end && match.end <= text.size(),
                    "a match is in the rest of the text");
      from = std::max(match.end, from + 1);
      while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
    }
    data::to_nfc(text);
  });
  return 0;
}
