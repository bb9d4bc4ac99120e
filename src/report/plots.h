// Plots as gnuplot scripts. A script holds its own figures, so that `gnuplot NAME.gp` draws
// NAME.svg and NAME.png anywhere. Colours are Okabe and Ito's, which people with any colour vision
// tell apart; text and axes are one mid-tone that stands out on white and on black alike, and the
// background of an SVG is transparent.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/table.h"
#include "record/record.h"

namespace veil {

struct Plot {
  std::string name;     // of its files
  std::string title;    // of the figure
  std::string caption;  // how to read it
  std::string spoken;   // its main figures, for those who cannot see it
  Table figures{std::vector<std::string>{"figure"}};  // all of them
  std::string script;
};

// Plots of any records; none if the records do not hold the figures.
std::vector<Plot> time_plot(const std::vector<Record>& records);
std::vector<Plot> phase_plot(const std::vector<Record>& records);
std::vector<Plot> memory_plot(const std::vector<Record>& records);     // at the peak, by category
std::vector<Plot> stage_plot(const std::vector<Record>& records);      // memory at each stage
std::vector<Plot> timeline_plots(const std::vector<Record>& records);  // one per record

// All of them.
std::vector<std::function<std::vector<Plot>(const std::vector<Record>&)>> general_plots();

}  // namespace veil
