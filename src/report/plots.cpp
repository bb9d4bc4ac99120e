#include "report/plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"
#include "base/units.h"
#include "report/axes.h"
#include "report/bars.h"
#include "report/canvas.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr const char* kBlue = "#0072B2";
constexpr size_t kTimelineWidth = 450;  // pixels between the axes

// Rows follow each other in time but last differently; each has the same width here. A row's memory
// is drawn as a flat piece of a stacked area, one closed curve per category, the topmost first and
// the lower ones over it.
Plot memory_timeline(const Record& record, const std::string& name, double largest) {
  std::vector<const Amounts*> views;
  for (const RecordRow& row : record.memory_rows) views.push_back(&row.after);
  const std::vector<std::string> parts = categories_of(views);
  const std::vector<std::string> colors = colors_of(parts);
  const Unit unit = bytes_unit(largest);
  std::string rows, marks, last_part;
  double highest = 0;
  size_t highest_row = 0;
  for (size_t i = 0; i < record.memory_rows.size(); ++i) {
    const RecordRow& row = record.memory_rows[i];
    std::string line;
    double edge = 0;
    for (const std::string& part : parts) {
      const auto found = row.after.find(part);
      edge += found == row.after.end() ? 0 : found->second;
      line += fmt::format(" {}", edge / unit.size);
    }
    const double peak = std::max(edge, row.peak_bytes.value_or(edge));
    if (peak > highest) {
      highest = peak;
      highest_row = i;
    }
    rows += fmt::format("{0}{2} {3}\n{1}{2} {3}\n", i, i + 1, line, peak / unit.size);
    if (row.part != last_part) {
      size_t end = i;
      while (end < record.memory_rows.size() && record.memory_rows[end].part == row.part) ++end;
      marks += fmt::format(
          "set arrow from {0}, graph 0 to {0}, graph 1 nohead linewidth 1 dashtype 2 linecolor rgb "
          "'{1}'\n",
          i, kInk);
      // No label if the part is too short for it.
      if ((end - i) * kTimelineWidth > letters(row.part) * kLetter * record.memory_rows.size()) {
        marks +=
            fmt::format("set label {} at {}, graph 0.95 left offset 0.4,0 textcolor rgb '{}'\n",
                        quoted(row.part), i, kInk);
      }
      last_part = row.part;
    }
  }
  std::vector<std::string> series;
  for (size_t k = parts.size(); k-- > 0;) {
    series.push_back(fmt::format("$figures using 1:{} with filledcurves y1=0 linecolor rgb '{}'",
                                 k + 2, colors[k]));
  }
  Legend legend{{}, "row of the schedule"};
  for (size_t k = 0; k < parts.size(); ++k) legend.entries.push_back({colors[k], spaced(parts[k])});
  legend.entries.push_back({kInk, "peak inside a row", true});
  series.push_back(fmt::format("$figures using 1:{} with lines linewidth 1.5 linecolor rgb '{}'",
                               parts.size() + 2, kInk));
  const RecordRow& top = record.memory_rows[highest_row];
  const int height = 250;
  const PlotAxis axis{.low = 0, .high = largest / unit.size * 1.15, .pixels = height};
  const std::vector<Tick> ticks = round_ticks(axis, 6);
  const std::string commands = fmt::format(
      "{1}set xrange [0:{2}]\nset yrange [0:{3}]\n{4}set grid ytics linetype 1 linewidth 0.5 "
      "linecolor rgb '{0}' dashtype 3\n{5}plot {6}\n",
      kInk, vertical_label(unit.name + " allocated", 0, height, height), record.memory_rows.size(),
      axis.high, tick_command('y', ticks), marks, join(series, ", \\\n     "));
  const std::string title = "Memory over a step: " + record.label;
  return Plot{
      name,
      title,
      fmt::format("Memory after each of the {} rows, all of one width however long they last. The "
                  "highest point, "
                  "{}, is in row {} ({} {}).",
                  record.memory_rows.size(), shown_bytes(highest), highest_row, top.op, top.on),
      "",
      row_table(record),
      script(name,
             {.title = title,
              .left = kLine + 4 + tick_room(ticks),
              .plot_height = height,
              .legend = legend},
             "$figures << EOD\n" + rows + "EOD\n", commands)};
}

}  // namespace

std::vector<Plot> time_plot(const std::vector<Record>& records) {
  BarRows bars{
      .name = "time_comparison",
      .title = "Time per step",
      .unit = "ms per step",
      .plot = fmt::format(
          "$figures using 2:1:(0):2:($1-0.3):($1+0.3) with boxxyerror linecolor rgb '{}', \\\n"
          "     $figures using 3:1:($4-$3):(0) with vectors heads size graph 0.008,90 linewidth "
          "1.5 linecolor rgb '{}'",
          kBlue, kInk)};
  std::string spoken;
  bool any = false;
  for (const Record& record : records) {
    const auto ms = compared_ms(record);
    const double spread = record.std_time_ms.value_or(0);
    const std::string text = ms ? format_ms(*ms) : outcome_words(record);
    BarRows::Row row;
    if (ms) row.columns = fmt::format("{} {} {}", *ms, std::max(0.0, *ms - spread), *ms + spread);
    row.extent = ms ? *ms + spread : 0;
    row.texts.push_back({row.extent, 0, text});
    bars.rows.push_back(std::move(row));
    spoken += fmt::format(" {}: {}.", record.label, text);
    any = any || ms;
  }
  if (!any) return {};
  return {Plot{bars.name, bars.title,
               "Mean of the timed steps; the whisker is one standard deviation to either side.",
               spoken, time_table(records), rows_script(bars, records)}};
}

std::vector<Plot> memory_plot(const std::vector<Record>& records) {
  const auto stack = memory_stack("memory_breakdown", "Memory at the peak, by category", records);
  if (!stack) return {};
  return {Plot{stack->name, stack->title,
               "What the bytes are for at the highest moment of the measured steps.", stack->spoken,
               breakdown_table(records), stacked_script(*stack, records)}};
}

std::vector<Plot> phase_plot(const std::vector<Record>& records) {
  Stack stack{.name = "phase_breakdown",
              .title = "Where a step's time goes",
              .spoken = "",
              .parts = step_parts_of(records),
              .amounts = {},
              .unit = {1, "ms per step"},
              .total_text = [](double ms) { return format_ms(ms); }};
  if (stack.parts.empty()) return {};
  for (const Record& record : records) {
    stack.amounts.push_back(step_parts(record));
    std::vector<std::string> parts;
    for (const auto& [name, ms] : stack.amounts.back())
      parts.push_back(spaced(name) + " " + format_ms(ms));
    stack.spoken +=
        fmt::format(" {}: {}.", record.label, parts.empty() ? "not recorded" : join(parts, ", "));
  }
  return {Plot{
      stack.name, stack.title,
      "Phases on the compute lane, its waits for other lanes, and what lies in neither (other).",
      stack.spoken, phase_table(records), stacked_script(stack, records)}};
}

std::vector<Plot> stage_plot(const std::vector<Record>& records) {
  const auto& moments = memory_moments();
  double largest = 0;
  for (const Record& record : records) {
    for (const MemoryMoment& moment : moments)
      largest = std::max(largest, moment.bytes(record).value_or(0));
  }
  if (largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  BarRows bars{.name = "memory_stages",
               .title = "Memory at each stage",
               .unit = unit.name + " allocated",
               .each = 96,
               .plot = ""};
  std::string spoken;
  for (const Record& record : records) {
    BarRows::Row row;
    std::vector<std::string> parts;
    for (size_t k = 0; k < moments.size(); ++k) {
      const auto bytes = moments[k].bytes(record);
      const double amount = bytes.value_or(0) / unit.size;
      row.columns += bytes ? fmt::format(" {}", amount) : " NaN";
      row.extent = std::max(row.extent, amount);
      if (bytes)
        row.texts.push_back(
            {amount, 0.3 - 0.2 * static_cast<double>(k), fmt::format("{:.2f}", amount)});
      parts.push_back(fmt::format("{} {}", moments[k].name, shown_bytes(bytes)));
    }
    bars.rows.push_back(std::move(row));
    spoken += fmt::format(" {}: {}.", record.label, join(parts, ", "));
  }
  std::vector<std::string> series;
  for (size_t k = 0; k < moments.size(); ++k) {
    const std::string color = series_color(std::vector<size_t>{4, 2, 1, 0}[k]);
    const double top = 0.39 - 0.2 * static_cast<double>(k);
    series.push_back(
        fmt::format("$figures using (0.5*${0}):1:(0):{0}:($1+{1:.2f}):($1+{2:.2f}) with boxxyerror "
                    "linecolor rgb '{3}'",
                    k + 2, top - 0.18, top, color));
    bars.legend.push_back({color, moments[k].name});
  }
  bars.plot = join(series, ", \\\n     ");
  return {Plot{bars.name, bars.title,
               "What the allocator holds at each stage, and the peak of the measured steps; of the "
               "rank that holds most.",
               spoken, stage_table(records), rows_script(bars, records)}};
}

std::vector<Plot> timeline_plots(const std::vector<Record>& records) {
  std::vector<Plot> plots;
  double largest = 0;  // one scale for all timelines: they are compared
  for (const Record& record : records) {
    for (const RecordRow& row : record.memory_rows) {
      double sum = 0;
      for (const auto& [name, bytes] : row.after) sum += bytes;
      largest = std::max({largest, sum, row.peak_bytes.value_or(0)});
    }
  }
  std::map<std::string, int> taken;
  for (const Record& record : records) {
    if (record.memory_rows.empty() || largest <= 0) continue;
    std::string name =
        "memory_timeline_" + picture_name(record.file.substr(0, record.file.rfind("_result.json")));
    if (const int again = taken[name]++) name += fmt::format("_{}", again + 1);
    plots.push_back(memory_timeline(record, name, largest));
  }
  return plots;
}

std::vector<std::function<std::vector<Plot>(const std::vector<Record>&)>> general_plots() {
  return {time_plot, phase_plot, memory_plot, stage_plot, timeline_plots};
}

}  // namespace veil
