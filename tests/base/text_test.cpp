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

TEST(Text, ColumnsAreAlignedAndLinesHaveNoTrailingSpace) {
  EXPECT_EQ(align_columns({{"a", "long", "x"}, {"bcd", ""}}, 1), " a    long  x\n bcd\n");
}

}  // namespace veil
