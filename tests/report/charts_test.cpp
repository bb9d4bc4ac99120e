#include "report/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/bars.h"
#include "report/tradeoff.h"

namespace veil {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GroupedBars bars_of(size_t modes, size_t groups) {
  GroupedBars bars{"bars", "Time", "tokens", {}, {}};
  BarPanel panel{"ms per step", {}, [](double value) { return std::to_string(int64_t(value)); }};
  for (size_t g = 0; g < groups; ++g) bars.groups.push_back(std::to_string(1024 << g));
  for (size_t m = 0; m < modes; ++m) {
    BarSeries series{"mode_" + std::to_string(m), series_color(m), {}};
    for (size_t g = 0; g < groups; ++g) series.values.push_back(BarValue{10000.0 + double(m), 0});
    panel.series.push_back(series);
  }
  bars.panels.push_back(panel);
  return bars;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Charts, TheVerticalLabelStandsAtTheEdgeWhateverTheMarksAre) {
  const std::string script = grouped_script(bars_of(3, 1));
  EXPECT_THAT(script, Not(HasSubstr("set ylabel")));
  EXPECT_THAT(script, HasSubstr("set label 'ms per step' at screen 0.02222,"));
  EXPECT_THAT(script, HasSubstr("'10000' 10000"));
  // Marks of five letters begin right of the label: 12 pixels for its middle, 8 for its half.
  const size_t margin = script.find("set lmargin at screen ");
  ASSERT_NE(margin, std::string::npos);
  const double left = 540 * std::stod(script.substr(margin + 22));
  EXPECT_GT(left - 5 * kLetter, 12 + 8);
}

TEST(Charts, ManyBarsBecomeRowsWithEveryNameAndNumberAndAPanelForEachGroup) {
  const std::string few = grouped_script(bars_of(2, 2)), many = grouped_script(bars_of(8, 6));
  EXPECT_THAT(few, Not(HasSubstr("set multiplot")));
  EXPECT_EQ(count_of(many, "\nset multiplot\n"), 2u);  // SVG and PNG
  for (int m = 0; m < 8; ++m) {
    EXPECT_EQ(count_of(many, "'mode_" + std::to_string(m) + "' "), 12u);
    EXPECT_EQ(count_of(many, "set label '" + std::to_string(10000 + m) + "'"), 12u);
  }
  EXPECT_THAT(many, HasSubstr("'2048 tokens'"));
}

TEST(Charts, TimeIsTheHorizontalAxisOfEveryTradeoff) {
  std::vector<TradeoffPoint> points = {{"auto", "#0072B2", "T = 1024", 250, 3.0 * (1 << 30)},
                                       {"auto", "#0072B2", "T = 2048", 500, 4.0 * (1 << 30)}};
  const std::string script = tradeoff_script("t", "Trade-off", points);
  EXPECT_THAT(script, HasSubstr("\n250 3 0\n500 4 0\n"));
  EXPECT_THAT(script, HasSubstr("'ms per step'"));
  EXPECT_THAT(script, HasSubstr("set label 'GiB at the peak' at screen"));
  EXPECT_THAT(script, HasSubstr("'T = 1024'"));  // points are named
  EXPECT_THAT(script, Not(HasSubstr("multiplot")));
  for (int i = 0; i < 12; ++i)
    points.push_back(
        {"mode" + std::to_string(i), series_color(1 + size_t(i)), "T = 1024", 100.0 + i, 1e9});
  EXPECT_THAT(tradeoff_script("t", "Trade-off", points), HasSubstr("set multiplot"));
  EXPECT_EQ(tradeoff_script("t", "Trade-off", {}), "");
}

TEST(Charts, AnAxisOfPercentEndsAtOneHundred) {
  Record record;
  record.label = "ghost";
  const BarRows bars{.name = "share",
                     .title = "Share",
                     .unit = "% of a step",
                     .axis_end = 100,
                     .rows = {{.columns = "3", .extent = 3, .texts = {{3, 0, "3.0 %"}}}},
                     .plot = "$figures using 2:1"};
  const std::string script = rows_script(bars, {record});
  EXPECT_THAT(script, HasSubstr("'100' 100)"));
  EXPECT_THAT(script, Not(HasSubstr("'120'")));
  EXPECT_THAT(script, HasSubstr("set xrange [0:100]"));
}

TEST(Charts, ManyRecordsShareAPanelIfTheyDoTheSameWork) {
  std::vector<Record> records(20);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].label = "experiment " + std::to_string(i);
    records[i].seq_length = i % 2 ? 1024 : 2048;
  }
  BarRows bars{.name = "b", .title = "B", .unit = "ms", .plot = "$figures using 2:1"};
  for (size_t i = 0; i < records.size(); ++i)
    bars.rows.push_back(
        {.columns = std::to_string(i), .extent = double(i), .texts = {{double(i), 0, "x"}}});
  const std::string script = rows_script(bars, records);
  EXPECT_THAT(script, HasSubstr("'sequence 1024'"));
  EXPECT_THAT(script, HasSubstr("$figures_1 << EOD"));
  EXPECT_THAT(script, Not(HasSubstr("plot $figures using")));
  for (const Record& record : records) EXPECT_THAT(script, HasSubstr("'" + record.label + "' "));
  records.resize(16);
  bars.rows.resize(16);
  EXPECT_THAT(rows_script(bars, records), HasSubstr("plot $figures using"));
}

}  // namespace
}  // namespace veil
