// One picture of a few curves, by gnuplot.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace veil {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; points that are not finite are left out
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

// Writes `path` (PNG). "" if that worked; where gnuplot is missing or fails, one line that says so, and `path`.gp and
// `path`.dat are left, from which `gnuplot path.gp` makes it. UserError where nothing can be written.
std::string write_png(const LinePlot& plot, const std::string& path);

}  // namespace veil
