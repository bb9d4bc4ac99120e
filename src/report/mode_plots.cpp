#include "report/mode_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/tables.h"

namespace veil {
namespace {

using All = std::vector<ModeFigures>;
using Member = std::optional<double> ModeFigures::*;

constexpr const char* kLengthAxis = "tokens in a sequence (T)";
constexpr size_t kMostPhases = 6;  // curves of one picture
constexpr const char* kRest = "rest";

std::string titled(const std::string& title, const std::vector<Record>& records) {
  const bool modelled = std::any_of(records.begin(), records.end(), [](const Record& r) { return r.simulated; });
  return modelled ? title + " (communication modelled)" : title;
}

std::vector<std::string> length_names(const All& all) {
  std::vector<std::string> names;
  for (const int64_t length : lengths_of(all)) names.push_back(std::to_string(length));
  return names;
}

// A colour keeps its mode in every picture, whichever modes a picture leaves out.
std::vector<BarSeries> series_of(const All& all, Member value, Member spread, double unit) {
  std::vector<BarSeries> result;
  const std::vector<std::string> modes = modes_of(all);
  for (size_t m = 0; m < modes.size(); ++m) {
    BarSeries series{modes[m], series_color(m), {}};
    bool any = false;
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, modes[m], length);
      series.values.emplace_back();
      if (!f || !(f->*value)) continue;
      series.values.back() = {*(f->*value) / unit, spread ? (f->*spread).value_or(0) / unit : 0};
      any = true;
    }
    if (any) result.push_back(std::move(series));
  }
  return result;
}

double largest_of(const All& all, Member value) {
  double largest = 0;
  for (const ModeFigures& f : all) largest = std::max(largest, std::abs((f.*value).value_or(0)));
  return largest;
}

std::string spoken_of(const All& all, const std::function<std::string(const ModeFigures&)>& words) {
  std::string spoken;
  for (const ModeFigures& f : all) {
    const std::string said = words(f);
    if (!said.empty()) spoken += fmt::format(" {}, T {}: {}.", f.mode, f.length, said);
  }
  return spoken;
}

std::string three_digits(double value) {
  return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

Plot memory_comparison(const All& all, const std::vector<Record>& records) {
  const Unit unit = bytes_unit(largest_of(all, &ModeFigures::bytes));
  GroupedBars bars{"memory_comparison", "Peak memory by mode", kLengthAxis, length_names(all), {}};
  bars.panels.push_back(
      {unit.name + " at the peak", series_of(all, &ModeFigures::bytes, nullptr, unit.size), three_digits});
  if (bars.panels[0].series.empty()) return {};
  return Plot{bars.name,
              bars.title,
              "The highest moment of the measured steps, of one rank, for each mode at each sequence length.",
              spoken_of(all, [](const ModeFigures& f) { return shown_bytes(f.bytes); }),
              mode_table(records),
              grouped_script(bars)};
}

Plot time_comparison(const All& all, const std::vector<Record>& records) {
  GroupedBars bars{"time_comparison", titled("Time a step by mode", records), kLengthAxis, length_names(all), {}};
  bars.panels.push_back({"ms a step", series_of(all, &ModeFigures::ms, &ModeFigures::spread_ms, 1), three_digits});
  if (bars.panels[0].series.empty()) return {};
  return Plot{bars.name,
              bars.title,
              "Mean of the timed steps; the whisker is one standard deviation to either side.",
              spoken_of(all, [](const ModeFigures& f) { return shown_ms(f.ms); }),
              mode_table(records),
              grouped_script(bars)};
}

Plot tradeoff(const All& all, const std::vector<Record>& records) {
  const Unit unit = bytes_unit(largest_of(all, &ModeFigures::bytes));
  Curves curves{.name = "memory_vs_time_tradeoff",
                .title = titled("Memory against time", records),
                .x_axis = unit.name + " at the peak",
                .y_axis = "ms a step",
                .lines = {}};
  const std::vector<std::string> modes = modes_of(all);
  for (size_t m = 0; m < modes.size(); ++m) {
    ChartLine line{modes[m], series_color(m), {}};
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, modes[m], length);
      if (f && f->ms && f->bytes)
        line.points.push_back({*f->bytes / unit.size, *f->ms, f->spread_ms.value_or(0), fmt::format("{}", length)});
    }
    if (!line.points.empty()) curves.lines.push_back(std::move(line));
  }
  if (curves.lines.empty()) return {};
  return Plot{curves.name,
              curves.title,
              "Each point is an experiment with its sequence length beside it; further left needs less memory, further "
              "down less time.",
              spoken_of(all,
                        [](const ModeFigures& f) {
                          return f.ms && f.bytes ? shown_bytes(f.bytes) + ", " + shown_ms(f.ms) : std::string();
                        }),
              mode_table(records),
              curves_script(curves)};
}

Plot overhead_analysis(All all, const std::vector<Record>& records) {
  for (ModeFigures& f : all) {
    if (f.more_share) f.more_share = 100 * *f.more_share;
  }
  GroupedBars bars{
      "overhead_analysis", titled("What privacy costs over no_dp", records), kLengthAxis, length_names(all), {}};
  const Unit unit = bytes_unit(largest_of(all, &ModeFigures::more_bytes));
  const auto memory = series_of(all, &ModeFigures::more_bytes, nullptr, unit.size);
  const auto time = series_of(all, &ModeFigures::more_share, nullptr, 1);
  if (memory.empty() || time.empty()) return {};
  bars.panels.push_back(
      {unit.name + " over no_dp", memory, [](double amount) { return fmt::format("{:.2g}", amount); }});
  bars.panels.push_back({"% of no_dp's time more", time, [](double share) { return fmt::format("{:.0f}", share); }});
  return Plot{bars.name,
              bars.title,
              "Above: memory at the peak beyond that of the step that is not private. Below: time "
              "beyond it, in percent.",
              spoken_of(all,
                        [](const ModeFigures& f) {
                          return f.more_bytes && f.more_share ? fmt::format("{} and {:.1f} percent more",
                                                                            shown_bytes(f.more_bytes), *f.more_share)
                                                              : std::string();
                        }),
              mode_table(records),
              grouped_script(bars)};
}

// A line of measured points, and its fit beside it.
void add_with_fit(std::vector<ChartLine>& lines, ChartLine line, const std::optional<PowerFit>& fit) {
  if (line.points.empty()) return;
  ChartLine law{line.name + ", fitted", line.color, {}, true};
  if (fit && line.points.size() > 1) {
    for (const ChartPoint* point : {&line.points.front(), &line.points.back()})
      law.points.push_back({point->x, fit->factor * std::pow(point->x, fit->exponent)});
  }
  lines.push_back(std::move(line));
  if (!law.points.empty()) lines.push_back(std::move(law));
}

ChartLine line_of(const std::string& name, size_t place, const std::vector<Record>& records, const std::string& mode,
                  const std::function<std::optional<double>(const Record&)>& value) {
  ChartLine line{name, series_color(place), {}};
  for (const Record& record : records) {
    if (record.mode != mode || !record.ok() || !record.seq_length) continue;
    if (const auto y = value(record); y && *y > 0) line.points.push_back({static_cast<double>(*record.seq_length), *y});
  }
  std::sort(line.points.begin(), line.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  return line;
}

Plot whole_scaling(const std::string& name, const std::string& title, const std::string& axis,
                   const std::vector<Record>& records, double unit,
                   const std::function<std::optional<double>(const Record&)>& value,
                   std::vector<PartGrowth> (*growth)(const std::vector<Record>&, const std::string&),
                   const std::string& whole) {
  Curves curves{name, title, kLengthAxis, axis, true, {}};
  const std::vector<std::string> modes = modes_of(mode_figures(records));
  std::string spoken;
  for (size_t m = 0; m < modes.size(); ++m) {
    for (PartGrowth& part : growth(records, modes[m])) {
      if (part.part != whole) continue;
      if (part.fit) spoken += fmt::format(" {}: {}.", modes[m], exponent_words(*part.fit));
      if (part.fit) part.fit->factor /= unit;
      add_with_fit(curves.lines,
                   line_of(modes[m], m, records, modes[m],
                           [&](const Record& record) -> std::optional<double> {
                             const auto v = value(record);
                             return v ? std::optional(*v / unit) : std::nullopt;
                           }),
                   part.fit);
    }
  }
  if (curves.lines.empty()) return {};
  return Plot{name,
              title,
              "Both axes are logarithmic: a power of T is a straight line, and its slope the exponent. Dashed: the "
              "fitted law.",
              spoken,
              growth_table(records),
              curves_script(curves)};
}

Plot phase_scaling(const std::vector<Record>& records, const std::string& mode) {
  Curves curves{
      "time_scaling_" + mode, titled("Phases by length: " + mode, records), kLengthAxis, "ms a step", true, {}};
  std::string spoken;
  size_t place = 0;
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step" || part.share < 0.005 || place >= kMostPhases) continue;
    add_with_fit(curves.lines,
                 line_of(spaced(part.part), place, records, mode,
                         [&](const Record& record) -> std::optional<double> {
                           const Amounts parts = step_parts(record);
                           const auto found = parts.find(part.part);
                           return found == parts.end() ? std::nullopt : std::optional(found->second);
                         }),
                 part.fit);
    if (part.fit) spoken += fmt::format(" {}: {}.", spaced(part.part), exponent_words(*part.fit));
    ++place;
  }
  if (curves.lines.empty()) return {};
  return Plot{curves.name,
              curves.title,
              "The largest phases of a step, both axes logarithmic. Dashed: the fitted law.",
              spoken,
              growth_table(records),
              curves_script(curves)};
}

// Shares of a step in percent; parts that are small in every record are one.
std::vector<Amounts> shares_of(const std::vector<Record>& records) {
  constexpr double kSmallPercent = 1.5;
  std::vector<Amounts> all;
  Amounts most;
  for (const Record& record : records) {
    Amounts parts = step_parts(record);
    double sum = 0;
    for (const auto& [part, ms] : parts) sum += ms;
    for (auto& [part, ms] : parts) {
      ms = sum > 0 ? 100 * ms / sum : 0;
      most[part] = std::max(most[part], ms);
    }
    all.push_back(std::move(parts));
  }
  for (Amounts& parts : all) {
    Amounts kept;
    for (const auto& [part, share] : parts) kept[most[part] < kSmallPercent ? kRest : part] += share;
    parts = std::move(kept);
  }
  return all;
}

Plot phases_by_length(const std::vector<Record>& records) {
  Stack stack{.name = "phases_by_length",
              .title = titled("Where a step's time goes, by length", records),
              .spoken = "",
              .parts = {},
              .amounts = shares_of(records),
              .unit = {1, "% of a step"},
              .total_text = {},
              .each = 40};
  const auto present = [&](const std::string& part) {
    return std::any_of(stack.amounts.begin(), stack.amounts.end(),
                       [&](const Amounts& parts) { return parts.count(part) > 0; });
  };
  for (const std::string& part : step_parts_of(records)) {
    if (present(part)) stack.parts.push_back(part);
  }
  if (stack.parts.empty()) return {};
  if (present(kRest)) stack.parts.push_back(kRest);
  for (size_t i = 0; i < records.size(); ++i) {
    std::vector<std::string> words;
    for (const auto& [part, share] : stack.amounts[i]) words.push_back(fmt::format("{} {:.1f} %", spaced(part), share));
    stack.end_texts.push_back(records[i].ok() ? shown_ms(compared_ms(records[i])) : outcome_words(records[i]));
    stack.spoken += fmt::format(" {}: {}.", records[i].label, words.empty() ? "not recorded" : join(words, ", "));
  }
  return Plot{stack.name,
              stack.title,
              "Phases on the compute lane, its waits for other lanes, and what lies in neither (other); parts that are "
              "small everywhere are one (rest). At the end of a bar the whole step.",
              stack.spoken,
              phase_table(records),
              stacked_script(stack, records)};
}

std::vector<Plot> those_that_are(std::vector<Plot> plots) {
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

}  // namespace

std::vector<Plot> llama3_plots(const std::vector<Record>& records) {
  const All all = mode_figures(records);
  return those_that_are({memory_comparison(all, records), time_comparison(all, records), tradeoff(all, records),
                         overhead_analysis(all, records)});
}

std::vector<Plot> bottleneck_plots(const std::vector<Record>& records) {
  double largest = 0;
  for (const Record& record : records) largest = std::max(largest, record.peak_memory_bytes.value_or(0));
  const Unit unit = bytes_unit(largest);
  std::vector<Plot> plots = {
      phases_by_length(records),
      whole_scaling("time_scaling", titled("Time by length", records), "ms a step", records, 1, compared_ms,
                    time_growth, "step"),
      whole_scaling(
          "memory_scaling", "Peak memory by length", unit.name + " at the peak", records, unit.size,
          [](const Record& record) { return record.peak_memory_bytes; }, memory_growth, "peak")};
  for (const std::string& mode : modes_of(mode_figures(records))) plots.push_back(phase_scaling(records, mode));
  return those_that_are(std::move(plots));
}

}  // namespace veil
