#include "data/nfc.h"

#include <algorithm>

namespace veil::data {

bool surely_nfc(std::string_view text) {
  // U+0300 is CC 80 in UTF-8.
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
}

}  // namespace veil::data
