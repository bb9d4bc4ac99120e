// Horizontal bars, one per experiment, plain or stacked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "record/record.h"
#include "report/canvas.h"

namespace veil {

// The palette of Okabe and Ito, with two greys instead of black, which a dark page would hide.
extern const std::vector<std::string> kOkabeIto;

// Known categories and phases have the same colour in all plots; others get the remaining colours.
std::vector<std::string> colors_of(const std::vector<std::string>& parts);

// One unit for a whole plot.
struct Unit {
  double size;
  std::string name;
};
Unit bytes_unit(double largest);

// Experiment i is at y = -i, so that the first is on top. `room`: length of the axis relative to
// the longest bar; the text at the end of a bar needs some.
std::string bar_axes(const std::vector<Record>& records, double largest, double room = 1.26);
Canvas bar_canvas(const std::string& title, const std::vector<Record>& records, int each,
                  Legend legend);
std::string bar_end(double x, double y, const std::string& text);
std::string datablock(const std::string& rows);

// Stacked bars. `amounts` holds each record's parts in the unit of the record.
struct Stack {
  std::string name, title, spoken;
  std::vector<std::string> parts;
  std::vector<Amounts> amounts;
  Unit unit;
  std::function<std::string(double)> total_text;
  double room = 1.26;                       // as in bar_axes
  int each = 48;                            // pixels per bar
  std::vector<std::string> end_texts = {};  // instead of the totals, one per record
};
// Bytes at the peak by category, one bar per record; nothing if no record has them.
std::optional<Stack> memory_stack(const std::string& name, const std::string& title,
                                  const std::vector<Record>& records);
std::string stacked_script(const Stack& stack, const std::vector<Record>& records);

}  // namespace veil
