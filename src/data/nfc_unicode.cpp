#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "data/nfc.h"
#include "data/utf8.h"

namespace veil::data {

namespace {

utf8proc_propval_t combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Canonical ordering: marks of a run stand by their classes, those of one class as they stood. utf8proc_decompose would
// do the same by exchanging neighbours, which a long hostile run makes quadratic.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto before = [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); };
  for (auto at = characters.begin(); at != characters.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, characters.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    if (!std::is_sorted(at, end, before)) std::stable_sort(at, end, before);
    at = end;
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  for (size_t position = 0; position < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(next_character(text, position));
    if (character < 0xC0) {
      characters.push_back(character);
      continue;
    }
    utf8proc_int32_t parts[8];
    const utf8proc_ssize_t count = utf8proc_decompose_char(character, parts, 8, options, nullptr);
    VEIL_CHECK(count >= 0 && count <= 8, "utf8proc takes U+{:04X} apart into {}", character, count);
    characters.insert(characters.end(), parts, parts + count);
  }
  order_marks(characters);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options);
  VEIL_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t index = 0; index < length; ++index) {
    append_character(result, static_cast<char32_t>(characters[static_cast<size_t>(index)]));
  }
  return result;
}

}  // namespace veil::data
