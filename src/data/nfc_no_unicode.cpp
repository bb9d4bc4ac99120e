#include "base/error.h"
#include "data/nfc.h"

namespace veil::data {

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  throw MissingBackend(
      "this build has no utf8proc, which this text needs for NFC: `apt-get install libpcre2-dev libutf8proc-dev`, then "
      "`make clean build`");
}

}  // namespace veil::data
