#include "base/shell_word.h"

#include <gtest/gtest.h>

namespace veil {

TEST(ShellWord, IsQuotedWhereItNeedsTo) {
  EXPECT_EQ(shell_word("runs/run_1"), "runs/run_1");
  EXPECT_EQ(shell_word("--modes=a,b:c@d"), "--modes=a,b:c@d");
  EXPECT_EQ(shell_word("my runs"), "'my runs'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace veil
