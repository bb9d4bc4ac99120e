#include "base/error.h"

#include <gtest/gtest.h>

namespace veil {

TEST(Error, AFailedCheckNamesTheFileTheConditionAndTheMessage) {
  try {
    VEIL_CHECK(1 + 1 == 3, "sum of {}", 2);
    FAIL() << "no exception";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("sum of 2 (1 + 1 == 3)"), std::string::npos)
        << error.what();
  }
}

TEST(Error, AUserErrorCarriesItsExitCode) {
  EXPECT_EQ(UserError("x").exit_code(), kExitUsage);
  EXPECT_EQ(MissingBackend("x").exit_code(), kExitMissing);
}

TEST(Error, AFieldErrorNamesItsFieldFirst) {
  try {
    field_error("clip_norm", "must be positive, got {}", -1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "clip_norm must be positive, got -1");
    EXPECT_EQ(error.field(), "clip_norm");
    EXPECT_EQ(error.exit_code(), kExitUsage);
  }
  EXPECT_EQ(UserError("x").field(), "");
}

}  // namespace veil
