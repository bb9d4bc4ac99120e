// Pictures of how time and memory grow with the tokens in a sample: measured points and their law.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/charts.h"
#include "report/plots.h"
#include "suite/modes.h"

namespace veil {

// Records whose modes are compared, of any lengths. Several become a panel each.
struct GrowthSeries {
  std::string name;
  std::vector<Record> records;
};

// Time of a step and peak memory by length, a curve per mode; none without points. `figures` is
// the table behind both.
std::vector<Plot> growth_plots(const std::vector<GrowthSeries>& series, const std::string& x_axis,
                               const Table& figures);

// One mode's points, by length; what is not positive is left out.
ChartLine growth_line(const std::string& name, const std::string& color,
                      const std::vector<Record>& records, const std::string& mode,
                      const std::function<std::optional<double>(const Record&)>& value);
// Adds a line of points and its law, dashed, if the points tell one. `unit`: what 1 on the axis is.
void add_with_law(std::vector<ChartLine>& lines, ChartLine line,
                  const std::optional<GrowthFit>& fit, double unit);

}  // namespace veil
