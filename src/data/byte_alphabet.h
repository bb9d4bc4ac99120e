// The alphabet of byte-level BPE, as GPT-2 wrote it first: each byte stands as one printable character, so that a
// vocabulary can be a table of strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace veil::data {

char32_t byte_to_character(uint8_t byte);

// The bytes that a word of the alphabet stands for; nothing where a character is not of the alphabet.
std::optional<std::string> bytes_of_word(std::string_view word);

}  // namespace veil::data
