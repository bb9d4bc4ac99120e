#include "report/tables.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

TEST(BytesScale, TheLargestDecidesTheUnitOfAll) {
  BytesScale scale;
  scale.see(300e3);
  scale.see(std::nullopt);
  scale.see(-5.0 * (1 << 20));
  EXPECT_EQ(scale.show(1 << 20), "1.00 MiB");
  EXPECT_EQ(scale.show(std::nullopt), "-");
  EXPECT_EQ(scale.show_change(-512.0 * 1024), "-0.50 MiB");
  EXPECT_EQ(scale.show_change(0), "+0.00 MiB");
  scale.see(2.0 * (1 << 30));
  EXPECT_EQ(scale.show(512.0 * (1 << 20)), "0.50 GiB");
  EXPECT_EQ(scale.show(1000), "<0.0001 GiB") << "little is not nothing";
  EXPECT_EQ(scale.show(1 << 20), "0.0010 GiB");
}

}  // namespace
}  // namespace veil
