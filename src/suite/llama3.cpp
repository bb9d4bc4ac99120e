// What a private step costs over one that is not, in memory and time: clipping modes by sequence
// lengths on Llama 3.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/tables.h"
#include "suite/modes.h"

namespace veil {
namespace {

using All = std::vector<ModeFigures>;
using Member = std::optional<double> ModeFigures::*;

std::vector<std::string> length_names(const All& all) {
  std::vector<std::string> names;
  for (const int64_t length : lengths_of(all)) names.push_back(std::to_string(length));
  return names;
}

// A mode has the same colour in every picture.
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
  bars.panels.push_back({unit.name + " at the peak",
                         series_of(all, &ModeFigures::bytes, nullptr, unit.size), three_digits});
  if (bars.panels[0].series.empty()) return {};
  return Plot{bars.name,
              bars.title,
              "The highest moment of the measured steps, of one rank, for each mode at each "
              "sequence length.",
              spoken_of(all, [](const ModeFigures& f) { return shown_bytes(f.bytes); }),
              mode_table(records),
              grouped_script(bars)};
}

Plot time_comparison(const All& all, const std::vector<Record>& records) {
  GroupedBars bars{"time_comparison",
                   titled("Time per step by mode", records),
                   kLengthAxis,
                   length_names(all),
                   {}};
  bars.panels.push_back(
      {"ms per step", series_of(all, &ModeFigures::ms, &ModeFigures::spread_ms, 1), three_digits});
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
                .y_axis = "ms per step",
                .lines = {}};
  const std::vector<std::string> modes = modes_of(all);
  for (size_t m = 0; m < modes.size(); ++m) {
    ChartLine line{modes[m], series_color(m), {}};
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, modes[m], length);
      if (f && f->ms && f->bytes)
        line.points.push_back(
            {*f->bytes / unit.size, *f->ms, f->spread_ms.value_or(0), fmt::format("{}", length)});
    }
    if (!line.points.empty()) curves.lines.push_back(std::move(line));
  }
  if (curves.lines.empty()) return {};
  return Plot{curves.name,
              curves.title,
              "Each point is an experiment with its sequence length beside it; further left needs "
              "less memory, further "
              "down less time.",
              spoken_of(all,
                        [](const ModeFigures& f) {
                          return f.ms && f.bytes ? shown_bytes(f.bytes) + ", " + shown_ms(f.ms)
                                                 : std::string();
                        }),
              mode_table(records),
              curves_script(curves)};
}

Plot overhead_analysis(All all, const std::vector<Record>& records) {
  for (ModeFigures& f : all) {
    if (f.more_share) f.more_share = 100 * *f.more_share;
  }
  GroupedBars bars{"overhead_analysis",
                   titled("What privacy costs over no_dp", records),
                   kLengthAxis,
                   length_names(all),
                   {}};
  const Unit unit = bytes_unit(largest_of(all, &ModeFigures::more_bytes));
  const auto memory = series_of(all, &ModeFigures::more_bytes, nullptr, unit.size);
  const auto time = series_of(all, &ModeFigures::more_share, nullptr, 1);
  if (memory.empty() || time.empty()) return {};
  bars.panels.push_back({unit.name + " over no_dp", memory,
                         [](double amount) { return fmt::format("{:.2g}", amount); }});
  bars.panels.push_back(
      {"% of no_dp's time more", time, [](double share) { return fmt::format("{:.0f}", share); }});
  return Plot{bars.name,
              bars.title,
              "Above: memory at the peak beyond that of the step that is not private. Below: time "
              "beyond it, in percent.",
              spoken_of(all,
                        [](const ModeFigures& f) {
                          return f.more_bytes && f.more_share
                                     ? fmt::format("{} and {:.1f} percent more",
                                                   shown_bytes(f.more_bytes), *f.more_share)
                                     : std::string();
                        }),
              mode_table(records),
              grouped_script(bars)};
}

std::vector<Plot> llama3_plots(const std::vector<Record>& records) {
  const All all = mode_figures(records);
  std::vector<Plot> plots = {memory_comparison(all, records), time_comparison(all, records),
                             tradeoff(all, records), overhead_analysis(all, records)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

std::string signed_bytes(double bytes) {
  return shown_bytes(std::abs(bytes)) + (bytes < 0 ? " less" : " more");
}

std::string signed_share(double share) {
  return percent_text(std::abs(share)) + (share < 0 ? " less time" : " more time");
}

bool told_apart(const ModeFigures& a, const ModeFigures& b) {
  return std::abs(*a.ms - *b.ms) > std::hypot(a.spread_ms.value_or(0), b.spread_ms.value_or(0));
}

// Private modes of one length that have a time, the fastest first.
std::vector<const ModeFigures*> fastest_first(const All& all, int64_t length) {
  std::vector<const ModeFigures*> found;
  for (const ModeFigures& f : all) {
    if (f.length == length && f.mode != "no_dp" && f.ms) found.push_back(&f);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const ModeFigures* a, const ModeFigures* b) { return *a->ms < *b->ms; });
  return found;
}

std::string cost_words(const All& all, const ModeFigures& f) {
  std::vector<std::string> parts;
  const ModeFigures* base = find_mode(all, "no_dp", f.length);
  if (f.more_share)
    parts.push_back(told_apart(f, *base) ? signed_share(*f.more_share)
                                         : "no other time within the spread");
  if (f.more_bytes) parts.push_back(signed_bytes(*f.more_bytes));
  return parts.empty() ? fmt::format("{} per step in {}", shown_ms(f.ms), shown_bytes(f.bytes))
                       : fmt::format("{} than no_dp", join(parts, " and "));
}

std::string llama3_headline(const All& all) {
  const std::vector<int64_t> lengths = lengths_of(all);
  std::vector<std::string> parts;
  for (const int64_t length : lengths) {
    const auto private_ones = fastest_first(all, length);
    if (private_ones.empty()) continue;
    const ModeFigures& best = *private_ones.front();
    std::string words = fmt::format("at T = {} {}, {}", length, best.mode, cost_words(all, best));
    if (private_ones.size() > 1 && !told_apart(best, *private_ones[1]))
      words += fmt::format(" ({} is as fast within the spread)", private_ones[1]->mode);
    parts.push_back(words);
  }
  if (parts.empty()) {
    const bool any =
        std::any_of(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
    return any ? "No private mode ended well, so nothing can be said of what privacy costs."
               : "No experiment ended well, so there is nothing to compare.";
  }
  return "The fastest private mode: " + join(parts, "; ") + ".";
}

std::vector<KeyFigure> llama3_figures(const All& all) {
  std::vector<KeyFigure> figures;
  const ModeFigures *cheapest = nullptr, *smallest = nullptr;
  for (const ModeFigures& f : all) {
    if (f.more_share && (!cheapest || *f.more_share < *cheapest->more_share)) cheapest = &f;
    if (f.more_bytes && (!smallest || *f.more_bytes < *smallest->more_bytes)) smallest = &f;
  }
  if (cheapest)
    figures.push_back({"least time for privacy",
                       fmt::format("{}{}", *cheapest->more_share < 0 ? "-" : "+",
                                   percent_text(std::abs(*cheapest->more_share))),
                       fmt::format("{}, T = {}", cheapest->mode, cheapest->length)});
  if (smallest)
    figures.push_back({"least memory for privacy",
                       fmt::format("{}{}", *smallest->more_bytes < 0 ? "-" : "+",
                                   shown_bytes(std::abs(*smallest->more_bytes))),
                       fmt::format("{}, T = {}", smallest->mode, smallest->length)});
  const auto ended =
      std::count_if(all.begin(), all.end(), [](const ModeFigures& f) { return f.ms.has_value(); });
  figures.push_back({"experiments", fmt::format("{} of {} ended well", ended, all.size()),
                     all.front().record->device.empty() ? "" : all.front().record->device});
  return figures;
}

// One sentence per private mode: its cost at every length.
std::vector<std::string> mode_words(const All& all) {
  std::vector<std::string> findings;
  for (const std::string& mode : modes_of(all)) {
    if (mode == "no_dp") continue;
    std::vector<std::string> parts;
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, mode, length);
      if (!f) continue;
      parts.push_back(fmt::format("T = {} {}", length,
                                  f->ms ? cost_words(all, *f) : outcome_words(*f->record)));
    }
    findings.push_back(mode + ": " + join(parts, "; ") + ".");
  }
  return findings;
}

Verdict llama3_verdict(const RecordFolder& folder) {
  const All all = mode_figures(folder.records);
  Verdict verdict;
  verdict.headline = llama3_headline(all);
  verdict.findings = mode_words(all);
  for (const std::string& mode : modes_of(all)) {
    if (const std::string words = growth_sentence(folder.records, mode); !words.empty())
      verdict.findings.push_back(words);
  }
  verdict.figures = llama3_figures(all);
  if (std::none_of(all.begin(), all.end(),
                   [](const ModeFigures& f) { return f.more_share.has_value(); }))
    verdict.caveats.push_back(
        "There is no no_dp record of the same length, so no overhead can be told.");
  return verdict;
}

// Also records without a suite that all name a mode and a sequence length, as other profilers of
// private training write them.
bool is_mode_comparison(const std::vector<Record>& records) {
  // Single profiles that differ in something else are no such comparison.
  std::set<std::pair<std::string, int64_t>> seen;
  for (const Record& record : records) {
    if (!seen.emplace(record.mode, record.seq_length.value_or(0)).second && record.suite.empty())
      return false;
  }
  return std::all_of(records.begin(), records.end(), [](const Record& record) {
    return record.suite == "llama3-dp" ||
           (record.suite.empty() && !record.mode.empty() && record.seq_length);
  });
}

}  // namespace

Suite llama3_suite() {
  Suite suite = mode_suite("llama3-dp", std::make_shared<ModeGrid>());
  suite.help = "what privacy costs on Llama 3: clipping modes by sequence lengths, memory and time";
  suite.page = {
      .question =
          "What does privacy cost in memory and time, by clipping mode and sequence length?",
      .holds = is_mode_comparison,
      .table = mode_table,
      .plots = {llama3_plots, phase_plot, memory_plot, timeline_plots},
      .verdict = llama3_verdict,
      .summary_beside_pictures = true};
  RunConfig& e = suite.config;
  e.model.name = "llama3.1-8b";
  e.model.task = Task::sequence_classification;
  e.model.labels = 3;
  e.step.batch_size = 2;
  e.measure.iterations = 3;
  e.measure.warmup = 1;
  return suite;
}

}  // namespace veil
