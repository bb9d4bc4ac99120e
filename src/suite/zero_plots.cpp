// The five plots of the ZeRO suite.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/canvas.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/tables.h"
#include "suite/zero.h"

namespace veil {
namespace {

using ZeroList = std::vector<ZeroFigures>;
using ZeroMember = std::optional<double> ZeroFigures::*;

constexpr int kBarPixels = 30;

// Every title says if communication was modelled, briefly enough for one line in the PNG.
std::string zero_titled(const std::string& title, const std::vector<Record>& records) {
  for (const Record& record : records) {
    if (!record.simulated) continue;
    return title + (record.link_gb_per_s
                        ? fmt::format(" (comm. modelled, {} GB/s)", *record.link_gb_per_s)
                        : std::string(" (comm. modelled)"));
  }
  return title;
}

template <typename T>
std::vector<T> in_order(const ZeroList& all, T ZeroFigures::*member) {
  std::vector<T> values;
  for (const ZeroFigures& f : all) {
    if (std::find(values.begin(), values.end(), f.*member) == values.end())
      values.push_back(f.*member);
  }
  return values;
}

std::vector<int64_t> sorted_batches(const ZeroList& all) {
  std::vector<int64_t> batches = in_order(all, &ZeroFigures::batch);
  std::sort(batches.begin(), batches.end());
  return batches;
}

size_t place_of(const std::vector<int64_t>& batches, int64_t batch) {
  return static_cast<size_t>(std::find(batches.begin(), batches.end(), batch) - batches.begin());
}

std::vector<std::pair<double, std::string>> batch_names(const std::vector<int64_t>& batches) {
  std::vector<std::pair<double, std::string>> names;
  for (size_t i = 0; i < batches.size(); ++i)
    names.emplace_back(static_cast<double>(i), std::to_string(batches[i]));
  return names;
}

std::string batch_tics(const std::vector<int64_t>& batches) {
  std::vector<std::string> tics;
  for (size_t i = 0; i < batches.size(); ++i) tics.push_back(fmt::format("'{}' {}", batches[i], i));
  return join(tics, ", ");
}

struct AgainstBatch {
  std::string name, title, caption, axis;
  ZeroMember value, spread;  // no spread: null
  double unit;
};

// A curve for each strategy over equally spaced batch sizes, a panel for each accumulation.
Plot against_batch(const AgainstBatch& what, const ZeroList& all,
                   const std::vector<Record>& records) {
  const std::vector<int64_t> batches = sorted_batches(all);
  const std::vector<std::string> strategies = in_order(all, &ZeroFigures::strategy);
  const std::vector<int64_t> accumulations = in_order(all, &ZeroFigures::accumulation);
  Curves curves{.name = what.name,
                .title = zero_titled(what.title, records),
                .x_axis = "batch size, samples per rank and micro-batch",
                .y_axis = what.axis,
                .lines = {},
                .x_names = batch_names(batches)};
  std::string spoken;
  for (const int64_t accumulation : accumulations) {
    CurvePanel panel{fmt::format("accumulation {}", accumulation), "", {}};
    for (size_t s = 0; s < strategies.size(); ++s) {
      ChartLine line{strategies[s], strategy_color(strategies[s], s), {}};
      for (const ZeroFigures& f : all) {
        if (f.strategy != strategies[s] || f.accumulation != accumulation || !(f.*what.value))
          continue;
        const double value = *(f.*what.value) / what.unit;
        const double spread = what.spread ? (f.*what.spread).value_or(0) / what.unit : 0;
        line.points.push_back(
            {static_cast<double>(place_of(batches, f.batch)), value, std::min(value, spread)});
        spoken += fmt::format(" {}: {:.4g}.", f.record->label, value);
      }
      std::sort(line.points.begin(), line.points.end(),
                [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
      if (!line.points.empty()) panel.lines.push_back(std::move(line));
    }
    if (!panel.lines.empty()) curves.panels.push_back(std::move(panel));
  }
  if (curves.panels.size() == 1) {
    curves.lines = curves.panels[0].lines;
    curves.panels.clear();
  }
  const std::string drawn = curves_script(curves);
  if (drawn.empty()) return {};
  return Plot{what.name,
              curves.title,
              what.caption + " Accumulation: micro-batches in a logical batch.",
              spoken,
              zero_table(records),
              drawn};
}

Plot tokens_plot(const ZeroList& all, const std::vector<Record>& records) {
  return against_batch(
      {"tokens_per_second", "Tokens per second by batch",
       "Tokens of all ranks per second, mean; the upright stroke is a standard deviation to either "
       "side.",
       "tokens per second", &ZeroFigures::tokens_per_second, &ZeroFigures::tokens_deviation, 1},
      all, records);
}

Plot peak_plot(const ZeroList& all, const std::vector<Record>& records) {
  double largest = 0;
  for (const ZeroFigures& f : all) largest = std::max(largest, f.peak_bytes.value_or(0));
  const Unit unit = bytes_unit(largest);
  return against_batch({"memory", "Peak memory by batch",
                        "The highest moment of the measured steps, on the rank that holds most.",
                        unit.name + " at the peak", &ZeroFigures::peak_bytes, nullptr, unit.size},
                       all, records);
}

// Shares of a step in percent. `part_of` names what a part is drawn as; "": not at all.
Plot share_plot(const std::string& name, const std::string& title, const std::string& caption,
                const ZeroList& all, const std::vector<Record>& records,
                const std::function<std::string(const std::string&)>& part_of,
                const std::function<std::string(const ZeroFigures&, double)>& end_text) {
  Stack stack{.name = name,
              .title = zero_titled(title, records),
              .spoken = "",
              .parts = {},
              .amounts = {},
              .unit = {1, "% of a step"},
              .total_text = [](double share) { return fmt::format("{:.1f} %", share); },
              .axis_end = 100,
              .each = kBarPixels};
  std::vector<std::string> names = step_parts_of(records);
  for (const std::string& part : names) {
    const std::string shown = part_of(part);
    if (!shown.empty() &&
        std::find(stack.parts.begin(), stack.parts.end(), shown) == stack.parts.end())
      stack.parts.push_back(shown);
  }
  if (stack.parts.empty()) return {};
  for (const ZeroFigures& f : all) {
    Amounts shares;
    double sum = 0, shown_sum = 0;
    const Amounts parts = f.ok ? step_parts(*f.record) : Amounts{};
    for (const auto& [part, ms] : parts) sum += ms;
    for (const auto& [part, ms] : parts) {
      const std::string shown = part_of(part);
      if (shown.empty() || sum <= 0) continue;
      shares[shown] += 100 * ms / sum;
      shown_sum += 100 * ms / sum;
    }
    stack.amounts.push_back(shares);
    stack.end_texts.push_back(f.ok ? end_text(f, shown_sum) : outcome_words(*f.record));
    std::vector<std::string> words;
    for (const auto& [part, share] : shares)
      words.push_back(fmt::format("{} {:.1f} %", part, share));
    stack.spoken +=
        fmt::format(" {}: {}.", f.record->label, words.empty() ? "none" : join(words, ", "));
  }
  const std::string drawn = stacked_script(stack, records);
  return Plot{name, stack.title, caption, stack.spoken, phase_table(records), drawn};
}

Plot communication_plot(const ZeroList& all, const std::vector<Record>& records) {
  return share_plot(
      "communication_overhead", "Communication overhead",
      "Time of a step in which computing waited for a collective, by kind: gathering parameters, "
      "reducing gradients. "
      "At the end of a bar: this share, and how long the collectives took in all, most of it "
      "perhaps hidden behind "
      "computing.",
      all, records,
      [](const std::string& part) {
        return part == "wait for gather" || part == "wait for reduce" ? part : std::string();
      },
      [](const ZeroFigures& f, double share) {
        return fmt::format("{:.1f} % (total {})", share, shown_ms(f.communication_ms));
      });
}

Plot breakdown_plot(const ZeroList& all, const std::vector<Record>& records) {
  return share_plot(
      "overhead_breakdown", "Where a step's time goes",
      "Computing; waits for collectives that nothing hid; data (waiting for a batch and bringing "
      "it to the device); "
      "host gap: "
      "computing stood still while the host issued work.",
      all, records,
      [](const std::string& part) {
        const bool overhead = part.starts_with("wait for ") || part == "data" || part == "other";
        if (part == "gap") return std::string("host gap");
        return overhead ? part : std::string("computing");
      },
      [](const ZeroFigures& f, double) { return shown_ms(f.step_ms); });
}

// From pale to deep blue, and black or white for the text on it: the one with more contrast, which
// is at least 4.5 on every colour.
std::pair<std::string, std::string> heat(double percent) {
  const double depth = std::clamp(percent / 100, 0.0, 1.0);
  const auto mix = [&](int pale, int deep) {
    return static_cast<int>(std::lround(pale + depth * (deep - pale)));
  };
  const int red = mix(0xe8, 0x00), green = mix(0xf1, 0x3f), blue = mix(0xf8, 0x70);
  // Relative luminance as WCAG 2 defines it.
  const auto linear = [](int level) {
    const double share = level / 255.0;
    return share <= 0.03928 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  const double light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) + 0.05;
  return {fmt::format("#{:02x}{:02x}{:02x}", red, green, blue),
          1.05 / light > light / 0.05 ? "#ffffff" : "#000000"};
}

Plot utilisation_plot(const ZeroList& all, const std::vector<Record>& records) {
  const bool nvml = std::any_of(all.begin(), all.end(),
                                [](const ZeroFigures& f) { return f.utilisation.has_value(); });
  const ZeroMember value = nvml ? &ZeroFigures::utilisation : &ZeroFigures::computing;
  if (std::none_of(all.begin(), all.end(),
                   [&](const ZeroFigures& f) { return (f.*value).has_value(); }))
    return {};
  const std::vector<int64_t> batches = sorted_batches(all);
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const ZeroFigures& f : all) {
    if (std::find(lines.begin(), lines.end(), std::pair(f.strategy, f.accumulation)) == lines.end())
      lines.emplace_back(f.strategy, f.accumulation);
  }
  std::string cells, tics, spoken;
  for (size_t i = 0; i < lines.size(); ++i)
    tics += fmt::format("{}{} -{}", i ? ", " : "",
                        quoted(fmt::format("{} x {}", lines[i].first, lines[i].second)), i);
  for (const ZeroFigures& f : all) {
    const auto line = std::find(lines.begin(), lines.end(), std::pair(f.strategy, f.accumulation)) -
                      lines.begin();
    const double x = static_cast<double>(place_of(batches, f.batch)),
                 y = -static_cast<double>(line);
    const auto& percent = f.*value;
    const auto [fill, ink] =
        percent ? heat(*percent) : std::pair<std::string, std::string>("#d0d0d0", "#202020");
    const std::string text = percent ? fmt::format("{:.0f} %", *percent) : outcome_words(*f.record);
    cells += fmt::format(
        "set object rectangle from {},{} to {},{} fillcolor rgb '{}' fillstyle solid 1 noborder\n"
        "set label {} at {},{} center front textcolor rgb '{}'\n",
        x - 0.48, y - 0.46, x + 0.48, y + 0.46, fill, quoted(text), x, y, ink);
    spoken += fmt::format(" {}: {}.", f.record->label, text);
  }
  const int height = 46 * static_cast<int>(lines.size());
  const std::string title =
      zero_titled(nvml ? "GPU utilisation" : "Computing, share of a step", records);
  const std::string commands = fmt::format(
      "{}{}set xrange [-0.5:{}]\nset yrange [-{}:0.5]\nset xtics ({})\nset ytics ({})\nplot NaN "
      "notitle\n",
      lines.size() > 2 ? vertical_label("strategy x accumulation", 0, height, height) : "", cells,
      static_cast<double>(batches.size()) - 0.5, static_cast<double>(lines.size()) - 0.5,
      batch_tics(batches), tics);
  const std::string caption =
      nvml ? "Share of the time in which a kernel ran on rank 0's GPU, by NVML; over 70% is good."
           : "There is no GPU to ask, so this is the share of a step in which a rank computed; "
             "grey: it did not end "
             "well.";
  return Plot{"utilisation_heatmap",
              title,
              caption,
              spoken,
              zero_table(records),
              script("utilisation_heatmap",
                     {.title = title,
                      .left = 110,
                      .plot_height = height,
                      .legend = {{}, "batch size, samples per rank and micro-batch"}},
                     "", commands)};
}

}  // namespace

std::vector<Plot> zero_plots(const std::vector<Record>& records) {
  const ZeroList all = zero_figures(records);
  std::vector<Plot> plots = {tokens_plot(all, records), peak_plot(all, records),
                             communication_plot(all, records), utilisation_plot(all, records),
                             breakdown_plot(all, records)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

}  // namespace veil
