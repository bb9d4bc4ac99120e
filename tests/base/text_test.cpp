#include "base/text.h"

#include <gtest/gtest.h>

namespace veil {

TEST(Text, EditDistanceCountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("batch", "batch"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("bath", "batch"), 1);
  EXPECT_EQ(edit_distance("btach", "batch"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Text, TheNearestNameIsFoundUnlessNoneIsNear) {
  EXPECT_EQ(nearest("docter", {"plan", "doctor"}), "doctor");
  EXPECT_EQ(nearest("doc", {"plan", "doctor"}), "doctor");
  EXPECT_EQ(nearest("banana", {"plan", "doctor"}), "");
}

TEST(Text, ForeignTextIsOneLineAndNotTooLong) {
  EXPECT_EQ(printable("plain ü"), "plain ü");
  EXPECT_EQ(printable(std::string_view("a\nb\x1b[31m\0", 9)), "a\\x0ab\\x1b[31m\\x00");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("aü", 2), "a...") << "a character was cut";
}

TEST(Text, AStarInAPatternStandsForAnyCharacters) {
  EXPECT_TRUE(matches_pattern("h.0.attn.bias", "h.*.attn.bias"));
  EXPECT_FALSE(matches_pattern("h.0.attn.c_attn.bias", "h.*.attn.bias"));
  EXPECT_TRUE(matches_pattern("abc", "abc"));
  EXPECT_FALSE(matches_pattern("abcd", "abc"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_TRUE(matches_pattern("xaybz", "*a*b*"));
  EXPECT_FALSE(matches_pattern("xbyaz", "*a*b*"));
  EXPECT_FALSE(matches_pattern("ab", "ab*b")) << "a character may not be used twice";
  EXPECT_TRUE(matches_pattern("abab", "*ab"));
}

TEST(Text, ColumnsAreAlignedAndLinesHaveNoTrailingSpace) {
  EXPECT_EQ(align_columns({{"a", "long", "x"}, {"bcd", ""}}, 1), " a    long  x\n bcd\n");
}

}  // namespace veil
