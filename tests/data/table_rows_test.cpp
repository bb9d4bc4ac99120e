#include "data/table_rows.h"

#include <gtest/gtest.h>

namespace veil::data {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::string& text, char separator = ',') {
  TableRows table(text, separator);
  Rows rows;
  while (const auto row = table.next()) rows.push_back(row->fields);
  return rows;
}

TEST(TableRows, QuotedFieldsHoldSeparatorsQuotesAndLineEnds) {
  EXPECT_EQ(rows_of("a,b\r\n\"x, \"\"y\"\"\n z\",2\n\n,\n"),
            (Rows{{"a", "b"}, {"x, \"y\"\n z", "2"}, {"", ""}}));
  EXPECT_EQ(rows_of("a\n1"), (Rows{{"a"}, {"1"}}));
  EXPECT_EQ(rows_of("\"a\"b,c"), (Rows{{"ab", "c"}}));
  EXPECT_EQ(rows_of(""), Rows{});
}

TEST(TableRows, TabsSeparateAndQuotesAreTextUnlessTheyHoldAField) {
  EXPECT_EQ(rows_of("\"a\"\tb, c\n\"no end\t\"half\" of it\t\"a \"\"b\"\"\"\n", '\t'),
            (Rows{{"a", "b, c"}, {"\"no end", "\"half\" of it", "a \"b\""}}));
}

TEST(TableRows, LinesAreCountedAndAnOpenQuoteIsTold) {
  TableRows table("a,b\n\"1\n2\",3\n4,\"5", ',');
  EXPECT_EQ(table.next()->line, 1);
  EXPECT_EQ(table.next()->line, 2);
  const auto last = table.next();
  EXPECT_EQ(last->line, 4);
  EXPECT_FALSE(last->closed);
}

}  // namespace
}  // namespace veil::data
