#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace veil {
namespace {

uint8_t byte_at(std::string_view text, size_t index) {
  return static_cast<uint8_t>(text[index]);
}

struct Stretch {
  // of the sequence; if it is ill-formed, of its longest prefix that could have been well-formed
  size_t bytes;
  bool valid;
};

// What begins at `start`. The bounds of the second byte are those of the Unicode standard, table
// 3-7.
Stretch sequence_at(std::string_view text, size_t start) {
  const uint8_t lead = byte_at(text, start);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t index = 1; index < length; ++index) {
    if (start + index >= text.size()) return {index, false};
    const uint8_t byte = byte_at(text, start + index);
    if (byte < low || byte > high) return {index, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    uint64_t eight;
    if (position + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + position, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        position += sizeof eight;
        continue;
      }
    }
    const Stretch stretch = sequence_at(text, position);
    if (!stretch.valid) return position;
    position += stretch.bytes;
  }
  return std::string_view::npos;
}

std::string repair_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = std::min(find_invalid_utf8(bytes), bytes.size());
    result.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    result += "\xEF\xBF\xBD";
    bytes.remove_prefix(sequence_at(bytes, 0).bytes);
  }
  return result;
}

std::string escape_controls(std::string_view text, bool keep_lines) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const uint8_t lead = byte_at(text, at);
    const Stretch stretch = sequence_at(text, at);
    const bool kept = keep_lines && (lead == '\n' || lead == '\t'),
               control = lead < 0x20 || lead == 0x7F ||
                         (lead == 0xC2 && stretch.valid && byte_at(text, at + 1) < 0xA0);
    for (size_t i = at; i < at + stretch.bytes; ++i) {
      const uint8_t byte = byte_at(text, i);
      if (stretch.valid && (kept || !control)) {
        result += text[i];
      } else {
        result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
    }
    at += stretch.bytes;
  }
  return result;
}

char32_t next_character(std::string_view text, size_t& position) {
  const uint8_t lead = byte_at(text, position++);
  if (lead < 0x80) return lead;
  const int following = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t character = lead & (0x3Fu >> following);
  for (int count = 0; count < following; ++count)
    character = (character << 6) | (byte_at(text, position++) & 0x3Fu);
  return character;
}

void append_character(std::string& text, char32_t character) {
  const auto add = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    add(character);
    return;
  }
  if (character < 0x800) {
    add(0xC0 | (character >> 6));
  } else {
    if (character < 0x10000) {
      add(0xE0 | (character >> 12));
    } else {
      add(0xF0 | (character >> 18));
      add(0x80 | ((character >> 12) & 0x3F));
    }
    add(0x80 | ((character >> 6) & 0x3F));
  }
  add(0x80 | (character & 0x3F));
}

}  // namespace veil
