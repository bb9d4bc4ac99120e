// Plots as gnuplot scripts. A script holds its own figures, so that `gnuplot NAME.gp` draws NAME.svg and NAME.png
// anywhere. Colours are Okabe and Ito's, which people with any colour vision tell apart; text and axes are one mid-tone
// that stands out on white and on black alike, and the background of an SVG is transparent.
#pragma once

#include <string>
#include <vector>

#include "base/table.h"
#include "report/records.h"

namespace veil {

struct Plot {
  std::string name;                                   // of its files
  std::string title;                                  // of the figure
  std::string caption;                                // how to read it
  std::string spoken;                                 // its main figures, for those who cannot see it
  Table figures{std::vector<std::string>{"figure"}};  // all of them
  std::string script;
};

// Those for which the records hold figures.
std::vector<Plot> make_plots(const std::vector<Record>& records);

// Writes the scripts into the folder and has gnuplot draw them there. The answer is empty, or one line that says why
// there are no pictures and how to get them.
std::string draw_plots(const std::vector<Plot>& plots, const std::string& folder);

// The folder's NAME.svg for the inside of a page: no prologue, no ids, the mid-tone as the CSS variable --plot-ink;
// `label` is its text alternative. "" if there is none.
std::string inline_svg(const std::string& folder, const std::string& name, const std::string& label);

}  // namespace veil
