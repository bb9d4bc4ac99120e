#include "data/http.h"

#include <cctype>

namespace veil {

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string url_quoted(std::string_view text, bool keep_slashes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool plain =
        byte < 0x80 && (std::isalnum(byte) || letter == '-' || letter == '.' || letter == '_' ||
                        letter == '~' || (letter == '/' && keep_slashes));
    if (plain) {
      result += letter;
    } else {
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

}  // namespace veil
