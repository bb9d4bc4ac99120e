// The plots that only the suite of diffusion transformers has.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/tables.h"
#include "report/tradeoff.h"
#include "suite/dit.h"

namespace veil {
namespace {

constexpr size_t kMostTimelines = 6;  // curves of one panel

double total_of(const Amounts& amounts) {
  double sum = 0;
  for (const auto& [name, bytes] : amounts) sum += bytes;
  return sum;
}

// An experiment's label is its mode, and behind it what else differs.
struct DitName {
  std::string mode, rest;
};
DitName name_parts(const Record& record) {
  const size_t blank = record.label.find(' ');
  if (blank == std::string::npos) return {record.label, ""};
  return {record.label.substr(0, blank), record.label.substr(blank + 1)};
}

Plot dit_breakdown(const std::vector<Record>& records) {
  const auto stack =
      memory_stack("memory_breakdown_comparison", "Memory at the peak, by component", records);
  if (!stack) return {};
  return Plot{stack->name,
              stack->title,
              "What the bytes are for at the highest moment of the measured steps; the parts of a "
              "bar sum to the allocator's peak. Clip records are what clipping keeps of a block "
              "until its coefficients are known; temporary holds the products of norms (ggT, aaT) "
              "and other scratch.",
              stack->spoken,
              breakdown_table(records),
              stacked_script(*stack, records)};
}

// One curve per mode over the rows of its own step, a panel for each of the other settings. Steps
// have different numbers of rows, so each curve is stretched to the whole width.
Plot dit_timeline(const std::vector<Record>& records) {
  double largest = 0;
  size_t count = 0;
  for (const Record& record : records) {
    count += record.memory_rows.empty() ? 0 : 1;
    for (const RecordRow& row : record.memory_rows)
      largest = std::max({largest, total_of(row.after), row.peak_bytes.value_or(0)});
  }
  if (largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  Curves curves{.name = "memory_timeline",
                .title = "Memory over a step",
                .x_axis = "part of the step's rows, %",
                .y_axis = unit.name + " allocated",
                .lines = {},
                .x_end = 100};
  std::string spoken;
  for (size_t i = 0; i < records.size(); ++i) {
    const std::vector<RecordRow>& rows = records[i].memory_rows;
    if (rows.empty()) continue;
    const DitName name = name_parts(records[i]);
    const bool panels = count > kMostTimelines && !name.rest.empty();
    ChartLine line{panels ? name.mode : records[i].label, "", {}};
    line.color = panels || name.rest.empty() ? mode_color(name.mode, i) : series_color(i);
    line.marked = false;
    double highest = 0;
    size_t highest_row = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      const double bytes = std::max(total_of(rows[r].after), rows[r].peak_bytes.value_or(0));
      line.points.push_back(
          {100.0 * (static_cast<double>(r) + 0.5) / static_cast<double>(rows.size()),
           bytes / unit.size});
      if (bytes > highest) highest = bytes, highest_row = r;
    }
    spoken += fmt::format(" {}: highest {}, in row {} of {} ({} {}).", records[i].label,
                          shown_bytes(highest), highest_row, rows.size(), rows[highest_row].op,
                          rows[highest_row].on);
    if (!panels) {
      curves.lines.push_back(std::move(line));
      continue;
    }
    auto panel = std::find_if(curves.panels.begin(), curves.panels.end(),
                              [&](const CurvePanel& p) { return p.name == name.rest; });
    if (panel == curves.panels.end())
      panel = curves.panels.insert(curves.panels.end(), {name.rest, "", {}});
    panel->lines.push_back(std::move(line));
  }
  // A label without other settings beside labels with them has a panel of its own.
  if (!curves.panels.empty() && !curves.lines.empty())
    curves.panels.insert(curves.panels.begin(), {"", "", std::move(curves.lines)});
  return Plot{curves.name,
              curves.title,
              "The most that was held while each row of the schedule ran, from a step's first row "
              "to its last; rows stand at equal distances however long they last.",
              spoken,
              breakdown_table(records),
              curves_script(curves)};
}

Plot dit_tradeoff(const std::vector<Record>& records) {
  std::vector<TradeoffPoint> points;
  std::string spoken;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto ms = compared_ms(records[i]);
    if (!ms || !records[i].peak_memory_bytes) {
      spoken += fmt::format(" {}: {}.", records[i].label, outcome_words(records[i]));
      continue;
    }
    const DitName name = name_parts(records[i]);
    points.push_back(
        {name.mode, mode_color(name.mode, i), name.rest, *ms, *records[i].peak_memory_bytes});
    spoken += fmt::format(" {}: {}, {}.", records[i].label, format_ms(*ms),
                          shown_bytes(records[i].peak_memory_bytes));
  }
  Plot plot{"performance_tradeoff", "Time and memory of a step",
            kTradeoffWords,         spoken,
            time_table(records),    ""};
  plot.script = tradeoff_script(plot.name, plot.title, points);
  return plot.script.empty() ? Plot{} : plot;
}

}  // namespace

std::vector<Plot> dit_plots(const std::vector<Record>& records) {
  std::vector<Plot> plots = {dit_breakdown(records), dit_timeline(records), dit_tradeoff(records)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

}  // namespace veil
