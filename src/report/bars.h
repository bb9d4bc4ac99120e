// Horizontal bars, one per experiment, plain or stacked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "record/record.h"
#include "report/canvas.h"
#include "report/colors.h"

namespace veil {

// One unit for a whole plot.
struct Unit {
  double size;
  std::string name;
};
Unit bytes_unit(double largest);

// Rows of bars, one per record, with a text at the end of each. Many records become several panels:
// those that do the same work (comparable_groups) share one, with its own scale.
struct BarRows {
  std::string name, title;
  std::string unit;  // of the horizontal axis
  std::vector<Legend::Entry> legend = {};
  int each = 48;                        // pixels per record; fewer where there are many
  std::optional<double> axis_end = {};  // of the axis' marks, such as 100 %
  // Of each record: its columns behind y, where its longest bar ends, and the texts beside it as
  // (x, y relative to the record's middle, text).
  struct EndText {
    double x, dy;
    std::string text;
  };
  struct Row {
    std::string columns;
    double extent = 0;
    std::vector<EndText> texts = {};
  };
  std::vector<Row> rows = {};
  // The plot command, over the datablock $figures: column 1 is y, the middle of the record.
  std::string plot;
};
std::string rows_script(const BarRows& bars, const std::vector<Record>& records);

// Stacked bars. `amounts` holds each record's parts in the unit of the record.
struct Stack {
  std::string name, title, spoken;
  std::vector<std::string> parts;
  std::vector<Amounts> amounts;
  Unit unit;
  std::function<std::string(double)> total_text;
  std::optional<double> axis_end = {};      // as in BarRows
  int each = 48;                            // pixels per bar
  std::vector<std::string> end_texts = {};  // instead of the totals, one per record
};
// Bytes at the peak by category, one bar per record; nothing if no record has them.
std::optional<Stack> memory_stack(const std::string& name, const std::string& title,
                                  const std::vector<Record>& records);
std::string stacked_script(const Stack& stack, const std::vector<Record>& records);

}  // namespace veil
