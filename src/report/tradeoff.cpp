#include "report/tradeoff.h"

#include <algorithm>

#include "report/bars.h"
#include "report/charts.h"

namespace veil {
namespace {

constexpr size_t kMostNamedPoints = 12;  // more would hide each other's names

// The line of a series, made where there is none yet.
ChartLine& line_of_series(std::vector<ChartLine>& lines, const TradeoffPoint& point) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const ChartLine& line) { return line.name == point.series; });
  if (found != lines.end()) return *found;
  return lines.emplace_back(ChartLine{point.series, point.color, {}});
}

}  // namespace

std::string tradeoff_script(const std::string& name, const std::string& title,
                            const std::vector<TradeoffPoint>& points) {
  double largest = 0;
  std::vector<std::string> groups;
  for (const TradeoffPoint& point : points) {
    largest = std::max(largest, point.bytes);
    if (std::find(groups.begin(), groups.end(), point.group) == groups.end())
      groups.push_back(point.group);
  }
  const Unit unit = bytes_unit(largest);
  Curves curves{.name = name,
                .title = title,
                .x_axis = "ms per step",
                .y_axis = unit.name + " at the peak",
                .lines = {}};
  if (groups.size() > 1 && points.size() > kMostNamedPoints) {
    for (const std::string& group : groups) {
      CurvePanel panel{group, "", {}};
      for (const TradeoffPoint& point : points) {
        if (point.group == group)
          line_of_series(panel.lines, point).points.push_back({point.ms, point.bytes / unit.size});
      }
      for (ChartLine& line : panel.lines) line.joined = false;
      curves.panels.push_back(std::move(panel));
    }
    return curves_script(curves);
  }
  for (const TradeoffPoint& point : points)
    line_of_series(curves.lines, point)
        .points.push_back(
            {point.ms, point.bytes / unit.size, 0, groups.size() > 1 ? point.group : point.series});
  for (ChartLine& line : curves.lines) line.joined = groups.size() > 1;
  return curves_script(curves);
}

}  // namespace veil
