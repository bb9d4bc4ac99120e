#include "base/quantity.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

TEST(Quantity, OneIsNotSeveral) {
  EXPECT_EQ(quantity(0, "rank"), "0 ranks");
  EXPECT_EQ(quantity(1, "rank"), "1 rank");
  EXPECT_EQ(quantity(2, "CPU rank"), "2 CPU ranks");
  EXPECT_EQ(quantity(1, "class", "classes"), "1 class");
  EXPECT_EQ(quantity(3, "class", "classes"), "3 classes");
}

}  // namespace
}  // namespace veil
