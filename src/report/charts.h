// Grouped vertical bars, and curves: one picture each, as a gnuplot script.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/canvas.h"

namespace veil {

struct BarValue {
  double value = 0, spread = 0;  // an error bar of one spread to either side; 0: none
};
// One colour of bar; a value or nothing for each group.
struct BarSeries {
  std::string name, color;
  std::vector<std::optional<BarValue>> values;
};
struct BarPanel {
  std::string axis;  // label of the vertical axis, with its unit
  std::vector<BarSeries> series;
  std::function<std::string(double)> shown;  // the number above a bar
};
// Panels are stacked vertically and share groups and colours.
struct GroupedBars {
  std::string name, title, group_axis;
  std::vector<std::string> groups;
  std::vector<BarPanel> panels;
};
std::string grouped_script(const GroupedBars& bars);

struct ChartPoint {
  double x, y;
  double spread = 0;
  std::string label = "";
};
struct ChartLine {
  std::string name, color;
  std::vector<ChartPoint> points;
  bool dashed = false;  // a fit: no marks
};
struct Curves {
  std::string name, title, x_axis, y_axis;
  bool logarithmic = false;  // both axes
  std::vector<ChartLine> lines;
};
std::string curves_script(const Curves& curves);

// Colours for series that have none of their own, by index.
std::string series_color(size_t place);

}  // namespace veil
