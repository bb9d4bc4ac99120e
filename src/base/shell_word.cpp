#include "base/shell_word.h"

#include <algorithm>
#include <cctype>

namespace veil {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "/._-+=,:@%";
  const bool plain = std::all_of(text.begin(), text.end(), [&](unsigned char letter) {
    return std::isalnum(letter) || kPlain.find(static_cast<char>(letter)) != kPlain.npos;
  });
  if (plain && !text.empty()) return std::string(text);
  std::string word = "'";
  for (const char letter : text) word += letter == '\'' ? "'\\''" : std::string(1, letter);
  return word + "'";
}

}  // namespace veil
