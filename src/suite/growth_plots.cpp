#include "suite/growth_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "report/bars.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {
namespace {

// The figure whose growth is drawn.
struct GrowingFigure {
  std::string name, title, axis, whole;  // `whole`: its part in `growth`
  double unit = 1;
  std::optional<double> (*value)(const Record&) = nullptr;
  std::vector<PartGrowth> (*growth)(const std::vector<Record>&, const std::string&) = nullptr;
  ShowAmount show;
};

Plot growth_plot(const GrowingFigure& figure, const std::vector<GrowthSeries>& all,
                 const std::string& x_axis, const Table& figures) {
  Curves curves{figure.name, figure.title, x_axis, figure.axis, true, {}};
  std::string spoken;
  for (const GrowthSeries& series : all) {
    std::vector<ChartLine> lines;
    const std::vector<std::string> modes = modes_of(mode_figures(series.records));
    for (size_t m = 0; m < modes.size(); ++m) {
      for (const PartGrowth& part : figure.growth(series.records, modes[m])) {
        if (part.part != figure.whole) continue;
        if (part.fit)
          spoken +=
              fmt::format(" {}{}: {}.", modes[m], series.name.empty() ? "" : ", " + series.name,
                          growth_words(*part.fit, figure.show));
        add_with_law(lines,
                     growth_line(modes[m], mode_color(modes[m], m), series.records, modes[m],
                                 [&](const Record& record) -> std::optional<double> {
                                   const auto v = figure.value(record);
                                   return v ? std::optional(*v / figure.unit) : std::nullopt;
                                 }),
                     part.fit, figure.unit);
      }
    }
    if (!lines.empty()) curves.panels.push_back({series.name, "", std::move(lines)});
  }
  if (curves.panels.empty()) return {};
  return Plot{curves.name,
              curves.title,
              "Both axes are logarithmic: what is proportional to T is a straight line of slope 1. "
              "Dashed: the law, where the points tell one.",
              spoken,
              figures,
              curves_script(curves)};
}

}  // namespace

void add_with_law(std::vector<ChartLine>& lines, ChartLine line,
                  const std::optional<GrowthFit>& fit, double unit) {
  if (line.points.empty()) return;
  ChartLine law{line.name + ", fitted", line.color, {}, true};
  if (fit && fit->is_told()) {
    constexpr int kPieces = 12;
    for (int i = 0; i <= kPieces; ++i) {
      const double length = fit->first_length * std::pow(fit->last_length / fit->first_length,
                                                         static_cast<double>(i) / kPieces);
      law.points.push_back({length, fit->at(length) / unit});
    }
  }
  lines.push_back(std::move(line));
  if (!law.points.empty()) lines.push_back(std::move(law));
}

ChartLine growth_line(const std::string& name, const std::string& color,
                      const std::vector<Record>& records, const std::string& mode,
                      const std::function<std::optional<double>(const Record&)>& value) {
  ChartLine line{name, color, {}};
  for (const Record& record : records) {
    if (record.mode != mode || !record.ok() || !record.seq_length) continue;
    if (const auto y = value(record); y && *y > 0)
      line.points.push_back({static_cast<double>(*record.seq_length), *y});
  }
  std::sort(line.points.begin(), line.points.end(),
            [](const auto& a, const auto& b) { return a.x < b.x; });
  return line;
}

std::vector<Plot> growth_plots(const std::vector<GrowthSeries>& series, const std::string& x_axis,
                               const Table& figures) {
  double largest = 0;
  std::vector<Record> all;
  for (const GrowthSeries& one : series)
    all.insert(all.end(), one.records.begin(), one.records.end());
  for (const Record& record : all)
    largest = std::max(largest, record.peak_memory_bytes.value_or(0));
  const Unit unit = bytes_unit(largest);
  std::vector<Plot> plots = {
      growth_plot({"time_scaling", titled("Time by length", all), "ms per step", "step", 1,
                   compared_ms, time_growth, show_time},
                  series, x_axis, figures),
      growth_plot({"memory_scaling", "Peak memory by length", unit.name + " at the peak", "peak",
                   unit.size, [](const Record& record) { return record.peak_memory_bytes; },
                   memory_growth, show_memory},
                  series, x_axis, figures)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

}  // namespace veil
