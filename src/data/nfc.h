// Unicode's normalization form C, by utf8proc's tables. A build without it (VEIL_UNICODE) answers with MissingBackend.
#pragma once

#include <string>
#include <string_view>

namespace veil::data {

// `text` is well-formed UTF-8. Linear in its length apart from sorting runs of combining marks, n log n.
std::string to_nfc(std::string_view text);

// No character below U+0300 changes under NFC: true needs no tables, false says nothing.
bool surely_nfc(std::string_view text);

}  // namespace veil::data
