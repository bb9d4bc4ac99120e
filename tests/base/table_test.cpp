#include "base/table.h"

#include <gtest/gtest.h>

namespace veil {

TEST(Table, NumbersGoRightAndWordsLeft) {
  Table table({"set-up", "ms", "peak"});
  table.row({"ddp", "1935", "26.2 GiB"});
  table.row({"zero3, prefetch", "-", "9.01 GiB"});
  EXPECT_EQ(table.text(),
            "set-up             ms      peak\n"
            "---------------  ----  --------\n"
            "ddp              1935  26.2 GiB\n"
            "zero3, prefetch     -  9.01 GiB\n");
}

TEST(Table, MarkdownEscapesStrokesAndMarksAlignment) {
  Table table({"a", "n"});
  table.row({"x|y", "1"});
  EXPECT_EQ(table.markdown(), "| a | n |\n|---|---:|\n| x\\|y | 1 |\n");
}

TEST(Table, NoCellBecomesMarkup) {
  Table table({"name"});
  table.row({"<script>&[x](y) `z`"});
  EXPECT_EQ(table.markdown(), "| name |\n|---|\n| &lt;script>&amp;\\[x](y) \\`z\\` |\n");
}

TEST(Table, CsvQuotesWhatNeedsIt) {
  Table table({"a", "b"});
  table.row({"say \"hi\", twice", "1"});
  table.row({"short"});
  EXPECT_EQ(table.csv(), "a,b\n\"say \"\"hi\"\", twice\",1\nshort,\n");
}

TEST(Table, WidthCountsCharactersAndNotBytes) {
  Table table({"name", "n"});
  table.row({"größe", "1"});
  table.row({"small", "10"});
  EXPECT_EQ(table.text(), "name    n\n-----  --\ngröße   1\nsmall  10\n");
}

TEST(Table, ATooLongRowIsAProgrammersError) {
  Table table({"a"});
  EXPECT_THROW(table.row({"1", "2"}), std::logic_error);
}

}  // namespace veil
