// UTF-8, checked and walked. Nothing here needs a Unicode table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace veil {

// Where the first ill-formed byte stands; npos if all is well-formed (no overlong forms, no
// surrogates).
size_t find_invalid_utf8(std::string_view text);

// Each ill-formed stretch becomes U+FFFD, one for each maximal prefix of a well-formed sequence
// (Unicode 3.9, as Rust's from_utf8_lossy).
std::string repair_utf8(std::string_view bytes);

// The character at `position`, which moves behind it. `text` must be well-formed.
char32_t next_character(std::string_view text, size_t& position);

// Text of others as it may reach a terminal: control characters (C0, C1 and DEL, which carry escape
// sequences) and ill-formed bytes become \xNN. `keep_lines`: ends of lines and tabs stay.
std::string escape_controls(std::string_view text, bool keep_lines);

void append_character(std::string& text, char32_t character);

}  // namespace veil
