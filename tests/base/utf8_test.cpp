#include "base/utf8.h"

#include <gtest/gtest.h>

#include "data/bpe.h"

namespace veil::data {
namespace {

using namespace std::string_literals;

TEST(Utf8, IllFormedBytesAreFoundWhereTheyStand) {
  const auto none = std::string_view::npos;
  const std::vector<std::pair<std::string, size_t>> table = {
      {"", none},
      {"plain and long enough for eight", none},
      {"\u00e9\u20ac\U0001F600", none},
      {"a\0b"s, none},
      {"\xF4\x8F\xBF\xBF", none},
      {"\xED\x9F\xBF", none},
      {"abc\x80", 3},
      {"\xC0\x80", 0},
      {"\xE0\x9F\xBF", 0},
      {"\xED\xA0\x80", 0},
      {"\xF4\x90\x80\x80", 0},
      {"\xF5", 0},
      {"12345678\xE2\x82", 8},
      {"\xC3", 0}};
  for (const auto& [text, place] : table)
    EXPECT_EQ(find_invalid_utf8(text), place) << ::testing::PrintToString(text);
}

TEST(Utf8, EachMaximalPrefixIsReplacedByOneCharacter) {
  EXPECT_EQ(repair_utf8("a\xE2\x82z"), "a\uFFFDz");
  EXPECT_EQ(repair_utf8("\xE2\x82"), "\uFFFD");
  // a surrogate has no well-formed prefix but its lead
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98"
                        "\xF0\x9F\x98\x80"),
            "\uFFFD\U0001F600");
  EXPECT_EQ(repair_utf8("fine \u00e9"), "fine \u00e9");
}

TEST(Utf8, CharactersGoInAndComeOut) {
  for (const char32_t character : {U'\0', U'a', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\uffff',
                                   U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    append_character(text, character);
    EXPECT_EQ(find_invalid_utf8(text), std::string::npos) << static_cast<uint32_t>(character);
    size_t position = 0;
    EXPECT_EQ(next_character(text, position), character);
    EXPECT_EQ(position, text.size());
  }
}

TEST(Utf8, ControlCharactersDoNotReachATerminal) {
  const std::string hostile =
      "a\x1b[2J\x07\xc2\x9b"
      "1m\x7f\r\n\tb\u00e9\xff";
  EXPECT_EQ(escape_controls(hostile, /*keep_lines=*/true),
            "a\\x1b[2J\\x07\\xc2\\x9b"
            "1m\\x7f\\x0d\n\tb\u00e9\\xff");
  EXPECT_EQ(escape_controls(hostile, /*keep_lines=*/false),
            "a\\x1b[2J\\x07\\xc2\\x9b"
            "1m\\x7f\\x0d\\x0a\\x09b\u00e9\\xff");
  EXPECT_EQ(escape_controls("\xc2", true), "\\xc2") << "half a character";
}

TEST(ByteAlphabet, EveryByteHasACharacterOfItsOwn) {
  std::string word, bytes;
  for (int byte = 0; byte < 256; ++byte) {
    append_character(word, byte_to_character(static_cast<uint8_t>(byte)));
    bytes.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(bytes_of_word(word), bytes);
  EXPECT_EQ(byte_to_character(' '), U'\u0120');
  EXPECT_FALSE(bytes_of_word("a b"));  // a space is no character of the alphabet
}

}  // namespace
}  // namespace veil::data
