// Horizontal bars, one an experiment, alone or made of parts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/canvas.h"
#include "report/records.h"

namespace veil {

// Okabe and Ito's, with two greys for their black, which would vanish on a dark page.
extern const std::vector<std::string> kOkabeIto;

// A category or phase that is known has one colour in all plots; the others share out what is left.
std::vector<std::string> colors_of(const std::vector<std::string>& parts);

// One unit for a whole plot.
struct Unit {
  double size;
  std::string name;
};
Unit bytes_unit(double largest);

// Experiment i lies at y = -i, so the first is on top and long names have room.
// `room`: the axis against the longest bar, for the text at its end.
std::string bar_axes(const std::vector<Record>& records, double largest, double room = 1.26);
Canvas bar_canvas(const std::string& title, const std::vector<Record>& records, int each, Legend legend);
std::string bar_end(double x, double y, const std::string& text);
std::string datablock(const std::string& rows);

// Bars made of parts, side by side in one bar. `amounts` holds each record's parts, in its own unit.
struct Stack {
  std::string name, title, spoken;
  std::vector<std::string> parts;
  std::vector<Amounts> amounts;
  Unit unit;
  std::function<std::string(double)> total_text;
  double room = 1.26;                       // as bar_axes
  int each = 48;                            // pixels a bar
  std::vector<std::string> end_texts = {};  // instead of the totals, one a record
};
// The peak's bytes by category, a bar a record; nothing where no record has them.
std::optional<Stack> memory_stack(const std::string& name, const std::string& title,
                                  const std::vector<Record>& records);
std::string stacked_script(const Stack& stack, const std::vector<Record>& records);

}  // namespace veil
