// Draws plots with gnuplot, which is run without a shell.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/plots.h"

namespace veil {

// UserError if the plots' scripts or pictures would replace what Veil did not write.
void check_plots(const std::vector<Plot>& plots, const std::string& folder, bool overwrite);
// Writes the scripts into the folder and draws them with gnuplot. Returns "", or one line that says
// why there are no pictures and how to get them.
std::string draw_plots(const std::vector<Plot>& plots, const std::string& folder,
                       bool overwrite = false);

// The folder's NAME.svg as part of a page: no prologue, no ids, the text colour as the CSS variable
// --plot-ink. `label` is its text alternative. "" if there is no such file.
std::string inline_svg(const std::string& folder, const std::string& name,
                       const std::string& label);

// A picture of a few curves that is no part of a page.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; points that are not finite are left out
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

// Writes `path` (PNG) and returns "". If gnuplot is missing or fails, returns one line that says so
// and leaves `path`.gp and `path`.dat, from which `gnuplot path.gp` draws it. UserError if nothing
// can be written, or if one of the three is in the way (check_png).
std::string write_png(const LinePlot& plot, const std::string& path, bool overwrite = false);
void check_png(const std::string& path, bool overwrite);

}  // namespace veil
