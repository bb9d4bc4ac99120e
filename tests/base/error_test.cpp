#include "base/error.h"

#include <gtest/gtest.h>

namespace veil {

TEST(Error, AFailedCheckNamesTheFileTheConditionAndTheMessage) {
  try {
    VEIL_CHECK(1 + 1 == 3, "sum of {}", 2);
    FAIL() << "no exception";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("sum of 2 (1 + 1 == 3)"), std::string::npos) << error.what();
  }
}

TEST(Error, AUserErrorCarriesItsExitCode) {
  EXPECT_EQ(UserError("x").exit_code(), kExitUsage);
  EXPECT_EQ(MissingBackend("x").exit_code(), kExitMissing);
}

}  // namespace veil
