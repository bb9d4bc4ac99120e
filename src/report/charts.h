// Grouped bars, and curves: one picture each, as a gnuplot script. Many bars or curves become small
// multiples, one panel per group with its own scale.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/canvas.h"
#include "report/colors.h"

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
// Panels are stacked vertically and share groups and colours. More bars than have room for their
// numbers are drawn as rows, a panel for each group.
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
  bool dashed = false;  // a fit: no marks, and not in the legend
  bool marked = true;   // a mark at each point
  bool joined = true;   // a line from point to point
  int dash = 1;         // gnuplot's dash type
};
struct CurvePanel {
  std::string name;    // above the panel
  std::string y_axis;  // "": that of the picture
  std::vector<ChartLine> lines;
};
struct Curves {
  std::string name, title, x_axis, y_axis;
  bool logarithmic = false;  // both axes
  std::vector<ChartLine> lines;
  // Instead of `lines`: several panels, so many beside each other, each with its own scale.
  std::vector<CurvePanel> panels = {};
  int columns = 2;
  bool x_logarithmic = false;        // with marks where points are, if they are few
  bool zero_based = true;            // linear axes begin at 0
  std::optional<double> x_end = {};  // of the horizontal axis
  std::vector<std::pair<double, std::string>> x_names = {};  // marks of the horizontal axis
  std::optional<double> rule = {};                           // a horizontal line at this height
};
// "" if there is no point.
std::string curves_script(const Curves& curves);

}  // namespace veil
