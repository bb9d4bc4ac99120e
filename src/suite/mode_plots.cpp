#include "suite/mode_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/tables.h"
#include "report/tradeoff.h"
#include "suite/modes.h"

namespace veil {
namespace {

using ModeList = std::vector<ModeFigures>;
using ModeMember = std::optional<double> ModeFigures::*;

std::vector<std::string> length_names(const ModeList& all) {
  std::vector<std::string> names;
  for (const int64_t length : lengths_of(all)) names.push_back(std::to_string(length));
  return names;
}

std::vector<BarSeries> series_of(const ModeList& all, ModeMember value, ModeMember spread,
                                 double unit) {
  std::vector<BarSeries> result;
  const std::vector<std::string> modes = modes_of(all);
  for (size_t m = 0; m < modes.size(); ++m) {
    BarSeries series{modes[m], mode_color(modes[m], m), {}};
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

double largest_of(const ModeList& all, ModeMember value) {
  double largest = 0;
  for (const ModeFigures& f : all) largest = std::max(largest, std::abs((f.*value).value_or(0)));
  return largest;
}

std::string spoken_of(const ModeList& all,
                      const std::function<std::string(const ModeFigures&)>& words) {
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

Plot mode_memory(const ModeList& all, const std::vector<Record>& records) {
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

Plot mode_time(const ModeList& all, const std::vector<Record>& records) {
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

Plot mode_tradeoff(const ModeList& all, const std::vector<Record>& records) {
  std::vector<TradeoffPoint> points;
  const std::vector<std::string> modes = modes_of(all);
  for (size_t m = 0; m < modes.size(); ++m) {
    for (const int64_t length : lengths_of(all)) {
      const ModeFigures* f = find_mode(all, modes[m], length);
      if (f && f->ms && f->bytes)
        points.push_back(
            {modes[m], mode_color(modes[m], m), fmt::format("T = {}", length), *f->ms, *f->bytes});
    }
  }
  Plot plot{"memory_vs_time_tradeoff",
            titled("Memory against time", records),
            std::string("Each point is an experiment. ") + kTradeoffWords,
            spoken_of(all,
                      [](const ModeFigures& f) {
                        return f.ms && f.bytes ? shown_bytes(f.bytes) + ", " + shown_ms(f.ms)
                                               : std::string();
                      }),
            mode_table(records),
            ""};
  plot.script = tradeoff_script(plot.name, plot.title, points);
  return plot.script.empty() ? Plot{} : plot;
}

Plot mode_overhead(ModeList all, const std::vector<Record>& records) {
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
  bars.panels.push_back({unit.name + " over no_dp", memory, three_digits});
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

// Tokens in a sample: of a language model its sequence, of a diffusion transformer its patches.
std::optional<int64_t> tokens_of(const Record& record) {
  if (record.seq_length) return record.seq_length;
  return record.diffusion ? record.diffusion->tokens : std::nullopt;
}

// A private step over one that is not.
struct CostPoint {
  std::string name, color;
  int64_t tokens = 0;
  double time = 0;
  std::optional<double> memory = {};
  std::string words = {};  // what was divided
  bool peer = false;
};

// A private record is divided by the plain one of its group (figures.h) with the same attention.
std::vector<CostPoint> own_costs(const std::vector<Record>& records) {
  std::vector<CostPoint> points;
  std::vector<std::string> names;
  const bool attentions = std::any_of(records.begin(), records.end(), [&](const Record& record) {
    return record.attention != records.front().attention;
  });
  for (const RecordGroup& group : comparable_groups(records)) {
    for (const Record* const record : group.records) {
      const auto plain =
          std::find_if(group.records.begin(), group.records.end(), [&](const Record* other) {
            return is_plain(other) && other->attention == record->attention;
          });
      if (plain == group.records.end() || is_plain(record)) continue;
      const auto ms = compared_ms(*record), base = compared_ms(**plain);
      const auto tokens = tokens_of(*record);
      if (!ms || !base || *base <= 0 || !tokens) continue;
      const std::string name =
          attentions ? fmt::format("{}, {}", record->mode, record->attention) : record->mode;
      const auto known = std::find(names.begin(), names.end(), name);
      const auto place = static_cast<size_t>(known - names.begin());
      if (known == names.end()) names.push_back(name);
      CostPoint point{name, mode_color(name, place), *tokens, *ms / *base};
      const auto &bytes = record->peak_memory_bytes, &base_bytes = (*plain)->peak_memory_bytes;
      if (bytes && base_bytes && *base_bytes > 0) point.memory = *bytes / *base_bytes;
      point.words = fmt::format("{} over {}", shown_ms(ms), shown_ms(base));
      points.push_back(std::move(point));
    }
  }
  return points;
}

// `taken`: places of the palette that other curves have.
std::vector<CostPoint> peer_costs(const Peers& peers, size_t taken) {
  std::vector<CostPoint> points;
  std::vector<std::string> names;
  for (const PeerRecord& peer : peers) {
    const PeerRecord* const plain = plain_peer(peers, peer);
    if (peer.is_plain() || !peer.ms || !plain) continue;
    const auto known = std::find(names.begin(), names.end(), peer.name());
    const auto place = static_cast<size_t>(known - names.begin());
    if (known == names.end()) names.push_back(peer.name());
    // Under a name that is no mode: colours of the rest of the palette.
    CostPoint point{peer.name(), mode_color("peer " + peer.name(), taken + place), peer.tokens,
                    *peer.ms / *plain->ms};
    if (peer.bytes && plain->bytes && *plain->bytes > 0) point.memory = *peer.bytes / *plain->bytes;
    point.words = fmt::format("{} over {}", shown_ms(peer.ms), shown_ms(plain->ms));
    point.peer = true;
    points.push_back(std::move(point));
  }
  return points;
}

// A curve per name, over the tokens. Several records of one name and length: the mean is not
// theirs, so each is a point of its own.
std::vector<ChartLine> cost_lines(const std::vector<CostPoint>& points,
                                  std::optional<double> (*value)(const CostPoint&)) {
  std::vector<ChartLine> lines;
  for (const CostPoint& point : points) {
    const auto amount = value(point);
    if (!amount) continue;
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const ChartLine& l) { return l.name == point.name; });
    if (line == lines.end()) {
      lines.push_back({point.name, point.color, {}});
      line = lines.end() - 1;
      line->dash = point.peer ? 2 : 1;
    }
    line->points.push_back({static_cast<double>(point.tokens), *amount});
  }
  for (ChartLine& line : lines)
    std::sort(line.points.begin(), line.points.end(),
              [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return lines;
}

Table cost_table(const std::vector<CostPoint>& points) {
  Table table({"mode", "tokens", "time over not private", "memory over not private", "step"});
  for (const CostPoint& point : points)
    table.row({point.name, std::to_string(point.tokens), fmt::format("{:.3f}x", point.time),
               point.memory ? fmt::format("{:.3f}x", *point.memory) : "-", point.words});
  return table;
}

}  // namespace

std::vector<Plot> mode_plots(const std::vector<Record>& records) {
  const ModeList all = mode_figures(records);
  std::vector<Plot> plots = {mode_memory(all, records), mode_time(all, records),
                             mode_tradeoff(all, records), mode_overhead(all, records)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

std::vector<Plot> privacy_cost_plots(const std::vector<Record>& records, const Peers& peers) {
  std::vector<CostPoint> points = own_costs(records);
  const std::vector<CostPoint> others = peer_costs(peers, points.size());
  points.insert(points.end(), others.begin(), others.end());
  if (points.empty()) return {};
  Curves curves{.name = "privacy_cost",
                .title = titled("The cost of privacy", records),
                .x_axis = "tokens in a sample (T)",
                .y_axis = "times a step that is not private",
                .lines = {},
                .columns = 1,
                .x_logarithmic = true,
                .zero_based = false,
                .rule = 1};
  curves.panels.push_back(
      {"Time", "time, private / plain",
       cost_lines(points, [](const CostPoint& p) { return std::optional(p.time); })});
  auto memory = cost_lines(points, [](const CostPoint& p) { return p.memory; });
  if (!memory.empty()) curves.panels.push_back({"Memory", "memory, private / plain", memory});
  std::string spoken;
  for (const CostPoint& point : points)
    spoken +=
        fmt::format(" {}, T {}: {:.2f} times the time{}.", point.name, point.tokens, point.time,
                    point.memory ? fmt::format(", {:.2f} times the memory", *point.memory) : "");
  return {Plot{curves.name, curves.title,
               std::string("Time and peak memory of a private step divided by those of the same "
                           "step without privacy; 1 (dashed, grey) means that privacy is free.") +
                   (others.empty() ? ""
                                   : " Dashed curves are other software, each divided by its own "
                                     "step without privacy."),
               spoken, cost_table(points), curves_script(curves)}};
}

}  // namespace veil
