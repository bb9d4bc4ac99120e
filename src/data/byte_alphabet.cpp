#include "data/byte_alphabet.h"

#include <array>

#include "data/utf8.h"

namespace veil::data {
namespace {

constexpr char32_t kLast = 0x143;  // of the alphabet's characters

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kLast + 1> byte{};

  // Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on.
  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t value = 0; value < 256; ++value) {
      const bool printable = (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xFF && value != 0xAD);
      character[value] = printable ? value : next++;
      byte[character[value]] = static_cast<int16_t>(value);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return alphabet().character[byte];
}

std::optional<std::string> bytes_of_word(std::string_view word) {
  std::string bytes;
  for (size_t position = 0; position < word.size();) {
    const char32_t character = next_character(word, position);
    if (character > kLast || alphabet().byte[character] < 0) return {};
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
  }
  return bytes;
}

}  // namespace veil::data
