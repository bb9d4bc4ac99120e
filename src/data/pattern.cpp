#include "data/pattern.h"

#include <algorithm>

#include "base/error.h"

namespace veil::data {
namespace {

// Unicode's White_Space and its complement, as the inside of a character class.
constexpr const char* kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"
    "205f}\\x{3000}";
constexpr const char* kNotSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

}  // namespace

std::string to_pcre2(const std::string& expression) {
  std::string result;
  bool in_class = false;
  for (size_t index = 0; index < expression.size(); ++index) {
    const char letter = expression[index];
    if (letter == '\\' && index + 1 < expression.size()) {
      const char escaped = expression[++index];
      if (escaped == 's' || escaped == 'S') {
        if (!in_class) result += '[';
        result += escaped == 's' ? kSpace : kNotSpace;
        if (!in_class) result += ']';
      } else {
        result += letter;
        result += escaped;
      }
      continue;
    }
    const bool nested =
        in_class && (letter == '[' || (letter == '&' && expression.substr(index, 2) == "&&"));
    if (nested)
      user_error(
          "the tokenizer's expression '{}' has a class within a class: that is not supported",
          expression);
    if (letter == '[') in_class = true;
    if (letter == ']') in_class = false;
    result += letter;
  }
  return result;
}

bool surely_nfc(std::string_view text) {
  // U+0300 is CC 80 in UTF-8.
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
}

}  // namespace veil::data
