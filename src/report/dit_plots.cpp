#include "report/dit_plots.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/canvas.h"
#include "report/tables.h"

namespace veil {
namespace {

const std::string& color_of(size_t i) {
  return kOkabeIto[i % kOkabeIto.size()];
}

double total_of(const Amounts& amounts) {
  double sum = 0;
  for (const auto& [name, bytes] : amounts) sum += bytes;
  return sum;
}

Plot breakdown_plot(const std::vector<Record>& records) {
  const auto stack = memory_stack("memory_breakdown_comparison", "Memory at the peak, by component", records);
  if (!stack) return {};
  return Plot{stack->name,
              stack->title,
              "What the bytes are for at the highest moment of the measured steps; the parts of a bar sum to the "
              "allocator's peak. Clip records are what clipping keeps of a block until its coefficients are known (the "
              "seed's activation hooks); temporary holds the products of norms (ggT, aaT) and other scratch.",
              stack->spoken,
              breakdown_table(records),
              stacked_script(*stack, records)};
}

// A curve a mode over the rows of its own step: steps have different numbers of rows, so each is stretched to the whole width.
Plot timeline_plot(const std::vector<Record>& records) {
  double largest = 0;
  for (const Record& record : records) {
    for (const RecordRow& row : record.memory_rows)
      largest = std::max({largest, total_of(row.after), row.peak_bytes.value_or(0)});
  }
  if (largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  std::string data, spoken;
  std::vector<std::string> series;
  Legend legend{{}, "part of the step's rows, %"};
  for (size_t i = 0; i < records.size(); ++i) {
    const std::vector<RecordRow>& rows = records[i].memory_rows;
    if (rows.empty()) continue;
    std::string points;
    double highest = 0;
    size_t highest_row = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      const double bytes = std::max(total_of(rows[r].after), rows[r].peak_bytes.value_or(0));
      points += fmt::format("{} {}\n", 100.0 * (static_cast<double>(r) + 0.5) / static_cast<double>(rows.size()),
                            bytes / unit.size);
      if (bytes > highest) highest = bytes, highest_row = r;
    }
    data += fmt::format("$mode_{} << EOD\n{}EOD\n", i, points);
    series.push_back(fmt::format("$mode_{} using 1:2 with lines linewidth 2 linecolor rgb '{}'", i, color_of(i)));
    legend.entries.push_back({color_of(i), records[i].label, true});
    spoken += fmt::format(" {}: highest {}, in row {} of {} ({} {}).", records[i].label, shown_bytes(highest),
                          highest_row, rows.size(), rows[highest_row].op, rows[highest_row].on);
  }
  const std::string name = "memory_timeline", title = "Memory over a step";
  const std::string commands = fmt::format(
      "set ylabel '{1}' textcolor rgb '{0}'\nset xrange [0:100]\nset yrange [0:{2}]\n"
      "set grid ytics linetype 1 linewidth 0.5 linecolor rgb '{0}' dashtype 3\nplot {3}\n",
      kInk, unit.name, largest / unit.size * 1.1, join(series, ", \\\n     "));
  return Plot{name,
              title,
              "The most that was held while each row of the schedule ran, from a step's first row to its last; rows "
              "stand at equal distances however long they last.",
              spoken,
              breakdown_table(records),
              script(name, {.title = title, .left = 64, .plot_height = 280, .legend = legend}, data, commands)};
}

Plot tradeoff_plot(const std::vector<Record>& records) {
  double slowest = 0, largest = 0;
  for (const Record& record : records) {
    if (!compared_ms(record) || !record.peak_memory_bytes) continue;
    slowest = std::max(slowest, *compared_ms(record));
    largest = std::max(largest, *record.peak_memory_bytes);
  }
  if (slowest <= 0 || largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  std::string data, spoken;
  std::vector<std::string> series;
  Legend legend{{}, "ms a step"};
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const auto ms = compared_ms(record);
    if (!ms || !record.peak_memory_bytes) {
      spoken += fmt::format(" {}: {}.", record.label, outcome_words(record));
      continue;
    }
    data += fmt::format("$mode_{} << EOD\n{} {}\nEOD\n", i, *ms, *record.peak_memory_bytes / unit.size);
    series.push_back(
        fmt::format("$mode_{} using 1:2 with circles fillstyle solid 1 noborder linecolor rgb '{}'", i, color_of(i)));
    legend.entries.push_back({color_of(i), record.label});
    spoken += fmt::format(" {}: {}, {}.", record.label, format_ms(*ms), shown_bytes(record.peak_memory_bytes));
  }
  const std::string name = "performance_tradeoff", title = "Time and memory of a step";
  const std::string commands = fmt::format(
      "set style circle radius screen 0.012\n"
      "set ylabel '{1} at the peak' textcolor rgb '{0}'\nset xrange [0:{2}]\nset yrange [0:{3}]\nset xtics autofreq\n"
      "set grid xtics ytics linetype 1 linewidth 0.5 linecolor rgb '{0}' dashtype 3\nplot {4}\n",
      kInk, unit.name, slowest * 1.1, largest / unit.size * 1.1, join(series, ", \\\n     "));
  return Plot{name,
              title,
              "Towards the left is faster, downwards needs less memory.",
              spoken,
              time_table(records),
              script(name, {.title = title, .left = 64, .plot_height = 280, .legend = legend}, data, commands)};
}

}  // namespace

bool is_dit_suite(const std::vector<Record>& records) {
  return !records.empty() &&
         std::all_of(records.begin(), records.end(), [](const Record& record) { return record.suite == "dit-dp"; });
}

std::vector<Plot> dit_plots(const std::vector<Record>& records) {
  std::vector<Plot> plots;
  for (Plot plot : {breakdown_plot(records), timeline_plot(records), tradeoff_plot(records)}) {
    if (!plot.name.empty()) plots.push_back(std::move(plot));
  }
  return plots;
}

}  // namespace veil
