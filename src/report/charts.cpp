#include "report/charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "report/axes.h"

namespace veil {
namespace {

constexpr int kPanelPixels = 230;
constexpr int kGapPixels = 44;     // between two panels
constexpr double kBarWidth = 0.8;  // of a group's room
constexpr size_t kMostLarge = 9;   // beyond this the figures above bars are smaller
constexpr double kSmallLetter = 6.5;
constexpr int kBarTicks = 6;

// From 0, or from the lowest value, with room for a number above the highest bar.
PlotAxis bar_axis(const BarPanel& panel) {
  double highest = 0, lowest = 0;
  for (const BarSeries& series : panel.series) {
    for (const auto& bar : series.values) {
      if (!bar) continue;
      highest = std::max(highest, bar->value + bar->spread);
      lowest = std::min(lowest, bar->value - bar->spread);
    }
  }
  const double room = std::max(highest - lowest, 1e-12);
  return {.low = lowest < 0 ? lowest - 0.14 * room : 0,
          .high = highest > 0 ? highest + 0.14 * room : 0.05 * room,
          .pixels = kPanelPixels};
}

std::string panel_commands(const GroupedBars& bars, const BarPanel& panel,
                           const std::string& data_name) {
  const auto count = static_cast<double>(panel.series.size());
  const double width = kBarWidth / std::max(1.0, count);
  std::string labels;
  std::vector<std::string> parts;
  const size_t all = panel.series.size() * bars.groups.size();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const BarSeries& series = panel.series[s];
    const double shift = (static_cast<double>(s) - (count - 1) / 2) * width;
    bool whiskers = false;
    for (size_t g = 0; g < series.values.size(); ++g) {
      if (!series.values[g]) continue;
      const auto& [value, spread] = *series.values[g];
      whiskers = whiskers || spread > 0;
      labels += fmt::format("set label {} at {},{} center offset 0,{} {}textcolor rgb '{}'\n",
                            quoted(panel.shown(value)), static_cast<double>(g) + shift,
                            value < 0 ? value - spread : value + spread, value < 0 ? "-0.7" : "0.6",
                            all > kMostLarge ? "font ',10' " : "", kInk);
    }
    parts.push_back(fmt::format(
        "{0} using ($1+({1})):{2} with boxes fillstyle solid 1 noborder linecolor rgb '{3}'",
        data_name, shift, 2 * s + 2, series.color));
    if (whiskers)
      parts.push_back(fmt::format(
          "{0} using ($1+({1})):(${2}-${3}):(0):(2*${3}) with vectors heads size graph 0.006,90 "
          "linewidth 1.2 linecolor rgb '{4}'",
          data_name, shift, 2 * s + 2, 2 * s + 3, kInk));
  }
  std::vector<std::string> tics;
  for (size_t g = 0; g < bars.groups.size(); ++g)
    tics.push_back(fmt::format("{} {}", quoted(bars.groups[g]), g));
  const PlotAxis axis = bar_axis(panel);
  return fmt::format(
      "set boxwidth {} absolute\nset xrange [-0.5:{}]\nset yrange [{}:{}]\nset xtics ({})\n{}"
      "set grid ytics linetype 1 linewidth 0.5 linecolor rgb '{}' dashtype 3\n{}plot {}\n",
      width * 0.94, static_cast<double>(bars.groups.size()) - 0.5, axis.low, axis.high,
      join(tics, ", "), tick_command('y', round_ticks(axis, kBarTicks)), kInk, labels,
      join(parts, ", \\\n     "));
}

// Columns: group, then value and spread of each series.
std::string panel_data(const GroupedBars& bars, const BarPanel& panel,
                       const std::string& data_name) {
  std::string rows;
  for (size_t g = 0; g < bars.groups.size(); ++g) {
    rows += std::to_string(g);
    for (const BarSeries& series : panel.series) {
      const auto& value = series.values[g];
      rows += value ? fmt::format(" {} {}", value->value, value->spread) : " NaN NaN";
    }
    rows += "\n";
  }
  return fmt::format("{} << EOD\n{}EOD\n", data_name, rows);
}

Legend legend_of(const GroupedBars& bars) {
  Legend legend{{}, bars.group_axis};
  std::set<std::string> named;
  for (const BarPanel& panel : bars.panels) {
    for (const BarSeries& series : panel.series) {
      if (named.insert(series.name).second) legend.entries.push_back({series.color, series.name});
    }
  }
  return legend;
}

constexpr int kRowPixels = 19;
constexpr int kRowsGap = 48;       // between the rows of two groups: marks and the group's name
constexpr int kFigurePixels = 62;  // for the number at the end of a bar

// One panel for each group, from top to bottom, and each metric, side by side: a row per series,
// named, with its number.
std::string grouped_rows_script(const GroupedBars& bars) {
  const Legend series = legend_of(bars);
  size_t longest = 4;
  for (const Legend::Entry& entry : series.entries)
    longest = std::max(longest, letters(entry.text));
  const int rows = static_cast<int>(series.entries.size());
  const int groups = static_cast<int>(bars.groups.size());
  const int height = groups * rows * kRowPixels + groups * kRowsGap;
  const int left = static_cast<int>(longest) * kLetter + 10;
  const int columns = static_cast<int>(bars.panels.size());
  const int cell = (kCanvasWidth - kEdge - left) / std::max(1, columns);
  std::string data, commands = "set multiplot\n";
  for (int g = 0; g < groups; ++g) {
    const int top = kRowsGap / 2 + g * (rows * kRowPixels + kRowsGap);
    for (int p = 0; p < columns; ++p) {
      const BarPanel& panel = bars.panels[static_cast<size_t>(p)];
      double highest = 0, lowest = 0;
      std::string numbers, labels, tics;
      for (int r = 0; r < rows; ++r) {
        const Legend::Entry& entry = series.entries[static_cast<size_t>(r)];
        tics += fmt::format("{}{} -{}", r ? ", " : "", p == 0 ? quoted(entry.text) : "''", r);
        for (const BarSeries& one : panel.series) {
          const auto& bar = one.values[static_cast<size_t>(g)];
          if (one.name != entry.text || !bar) continue;
          highest = std::max(highest, bar->value + bar->spread);
          lowest = std::min(lowest, bar->value - bar->spread);
          numbers += fmt::format("-{} {} {}\n", r, bar->value, 1 + r);
          labels +=
              fmt::format("set label {} at {},-{} left offset 0.6,0 textcolor rgb '{}'\n",
                          quoted(panel.shown(bar->value)), std::max(0.0, bar->value), r, kInk);
        }
      }
      const int width = cell - 12;
      const double room = std::max(highest - lowest, 1e-12);
      const PlotAxis axis{.low = lowest < 0 ? lowest - 0.1 * room : 0,
                          .high = std::max(highest, 0.0) +
                                  room * kFigurePixels / std::max(1, width - kFigurePixels),
                          .pixels = width};
      const std::string block = fmt::format("$rows_{}_{}", g, p);
      data += fmt::format("{} << EOD\n{}EOD\n", block, numbers.empty() ? "0 NaN 1\n" : numbers);
      commands += fmt::format(
          "set lmargin at {}\nset rmargin at {}\nset tmargin at {}\nset bmargin at {}\n",
          across(left + p * cell), across(left + p * cell + width), down(top, height),
          down(top + rows * kRowPixels, height));
      if (p == 0)
        labels += fmt::format("set label {} at {},{} left textcolor rgb '{}'\n",
                              quoted(bars.groups[static_cast<size_t>(g)] + " " + bars.group_axis),
                              across(left), down(top - 11, height), kInk);
      if (g + 1 == groups)
        labels += fmt::format("set label {} at {},{} center textcolor rgb '{}'\n",
                              quoted(panel.axis), across(left + p * cell + width / 2.0),
                              down(height + 28 + kLine / 2.0, height), kInk);
      std::vector<std::string> parts;
      for (int r = 0; r < rows; ++r) {
        parts.push_back(fmt::format(
            "{} using ($3=={}?0.5*$2:NaN):1:(0):2:($1-0.38):($1+0.38) with boxxyerror linecolor "
            "rgb '{}'",
            block, 1 + r, series.entries[static_cast<size_t>(r)].color));
      }
      commands += fmt::format(
          "set xrange [{}:{}]\nset yrange [-{}.5:0.5]\nset ytics ({})\n{}set grid xtics linetype 1 "
          "linewidth 0.5 linecolor rgb '{}' dashtype 3\n{}plot {}\nunset label\nunset object\n",
          axis.low, axis.high, rows - 1, tics,
          tick_command('x', without_overlaps(round_ticks(axis, width / 70), axis)), kInk, labels,
          join(parts, ", \\\n     "));
    }
  }
  commands += "unset multiplot\n";
  return script(bars.name,
                {.title = bars.title, .left = left, .plot_height = height, .legend = {{}, ""}},
                data, commands);
}

// Whether each bar is as wide as the number above it.
bool figures_fit(const GroupedBars& bars) {
  for (const BarPanel& panel : bars.panels) {
    const size_t all = panel.series.size() * bars.groups.size();
    const double pitch =
        kBarWidth * (kCanvasWidth - 90) / static_cast<double>(std::max<size_t>(1, all));
    for (const BarSeries& series : panel.series) {
      for (const auto& bar : series.values) {
        const double letter = all > kMostLarge ? kSmallLetter : kLetter;
        if (bar && letter * static_cast<double>(letters(panel.shown(bar->value))) > pitch)
          return false;
      }
    }
  }
  return true;
}

}  // namespace

std::string grouped_script(const GroupedBars& bars) {
  if (!figures_fit(bars)) return grouped_rows_script(bars);
  std::string data;
  int left = 0;
  for (size_t p = 0; p < bars.panels.size(); ++p) {
    data += panel_data(bars, bars.panels[p], fmt::format("$panel_{}", p));
    left = std::max(left, kLine + 4 + tick_room(round_ticks(bar_axis(bars.panels[p]), kBarTicks)));
  }
  const int count = static_cast<int>(bars.panels.size());
  const int height = count * kPanelPixels + (count - 1) * kGapPixels;
  std::string commands = count > 1 ? "set multiplot\n" : "";
  for (int p = 0; p < count; ++p) {
    const BarPanel& panel = bars.panels[static_cast<size_t>(p)];
    const int top = p * (kPanelPixels + kGapPixels);
    if (count > 1)
      commands += fmt::format("set tmargin at {}\nset bmargin at {}\n", down(top, height),
                              down(top + kPanelPixels, height));
    commands += vertical_label(panel.axis, top, top + kPanelPixels, height);
    commands += panel_commands(bars, panel, fmt::format("$panel_{}", p));
    if (p + 1 < count) commands += "unset label\nunset object\n";
  }
  if (count > 1) commands += "unset multiplot\n";
  return script(
      bars.name,
      {.title = bars.title, .left = left, .plot_height = height, .legend = legend_of(bars)}, data,
      commands);
}

namespace {

// The axes of one panel of curves, and whether it has any point.
struct CurveAxes {
  PlotAxis x, y;
  std::vector<Tick> x_ticks, y_ticks;
  bool any = false;
};

bool drawable(const Curves& curves, const ChartPoint& point) {
  if (!std::isfinite(point.x) || !std::isfinite(point.y)) return false;
  if ((curves.logarithmic || curves.x_logarithmic) && point.x <= 0) return false;
  return !curves.logarithmic || point.y > 0;
}

CurveAxes axes_of(const Curves& curves, const std::vector<ChartLine>& lines, int width,
                  int height) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  std::set<double> measured;
  CurveAxes axes;
  for (const ChartLine& line : lines) {
    for (const ChartPoint& point : line.points) {
      if (!drawable(curves, point)) continue;
      axes.any = true;
      x_low = std::min(x_low, point.x), x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y - (curves.logarithmic ? 0 : point.spread));
      y_high = std::max(y_high, point.y + point.spread);
      if (!line.dashed) measured.insert(point.x);
    }
  }
  if (!axes.any) return axes;
  if (curves.rule) y_low = std::min(y_low, *curves.rule), y_high = std::max(y_high, *curves.rule);
  axes.x = {.low = 0, .high = x_high > 0 ? 1.2 * x_high : 1, .pixels = width};
  axes.y = {.low = 0, .high = y_high > 0 ? 1.15 * y_high : 1, .pixels = height};
  if (!curves.zero_based) {
    const double room = y_high > y_low ? y_high - y_low : std::max(std::abs(y_high), 1e-9);
    axes.y.low = y_low - 0.08 * room, axes.y.high = y_high + 0.12 * room;
    if (y_low >= 0) axes.y.low = std::max(axes.y.low, 0.0);
  }
  if (curves.logarithmic || curves.x_logarithmic)
    axes.x = {.low = x_low / 1.15, .high = x_high * 1.15, .pixels = width, .logarithmic = true};
  if (curves.logarithmic)
    axes.y = {.low = y_low / 1.5, .high = y_high * 1.5, .pixels = height, .logarithmic = true};
  if (curves.x_end) axes.x.high = *curves.x_end;
  if (!curves.x_names.empty()) axes.x.low = -0.3, axes.x.high = curves.x_names.back().first + 0.3;
  for (const auto& [at, name] : curves.x_names) axes.x_ticks.push_back({at, name});
  constexpr size_t kFewPoints = 12;
  if (axes.x_ticks.empty() && axes.x.logarithmic && measured.size() <= kFewPoints) {
    for (const double x : measured) axes.x_ticks.push_back({x, fmt::format("{:.8g}", x)});
  }
  if (axes.x_ticks.empty()) axes.x_ticks = round_ticks(axes.x, std::max(2, width / 75));
  axes.x_ticks = without_overlaps(axes.x_ticks, axes.x);
  axes.y_ticks = round_ticks(axes.y, std::max(2, height / 34));
  return axes;
}

// Labels where they fit, as commands.
std::string label_commands(const Curves& curves, const std::vector<ChartLine>& lines,
                           const CurveAxes& axes) {
  std::vector<LabelledPoint> found;
  for (const ChartLine& line : lines) {
    for (const ChartPoint& point : line.points) {
      if (!line.dashed && drawable(curves, point))
        found.push_back({axes.x.to_pixels(point.x), axes.y.to_pixels(point.y), point.label});
    }
  }
  std::string labels;
  const auto places = place_labels(found, axes.x.pixels, axes.y.pixels);
  for (size_t i = 0; i < found.size(); ++i) {
    if (places[i])
      labels += fmt::format("set label {} at {},{} left textcolor rgb '{}'\n",
                            veil::quoted(found[i].text), axes.x.from_pixels(places[i]->x),
                            axes.y.from_pixels(places[i]->y), kInk);
  }
  return labels;
}

struct DrawnPanel {
  std::string data, plot;
};

DrawnPanel draw_lines(const Curves& curves, const std::vector<ChartLine>& lines,
                      const std::string& block_name) {
  DrawnPanel drawn;
  std::vector<std::string> parts;
  for (size_t i = 0; i < lines.size(); ++i) {
    const ChartLine& line = lines[i];
    std::string rows;
    bool spread = false;
    for (const ChartPoint& point : line.points) {
      if (!drawable(curves, point)) continue;
      rows += fmt::format("{} {} {}\n", point.x, point.y, point.spread);
      spread = spread || point.spread > 0;
    }
    if (rows.empty()) continue;
    const std::string block = fmt::format("{}_{}", block_name, i);
    drawn.data += fmt::format("{} << EOD\n{}EOD\n", block, rows);
    if (line.joined)
      parts.push_back(
          fmt::format("{} using 1:2 with lines linewidth {} dashtype {} linecolor rgb '{}'", block,
                      line.dashed ? 1 : 2, line.dashed ? 2 : line.dash, line.color));
    if (line.dashed) continue;
    if (line.marked)
      parts.push_back(
          fmt::format("{} using 1:2 with circles fillstyle solid 1 noborder linecolor rgb '{}'",
                      block, line.color));
    if (spread && !curves.logarithmic)
      parts.push_back(fmt::format(
          "{} using 1:($2-$3):(0):(2*$3) with vectors nohead linewidth 1 linecolor rgb '{}'", block,
          line.color));
  }
  drawn.plot = join(parts, ", \\\n     ");
  return drawn;
}

std::string axis_commands(const Curves& curves, const CurveAxes& axes) {
  std::string commands =
      fmt::format("unset logscale\n{}set xrange [{}:{}]\nset yrange [{}:{}]\n{}{}",
                  axes.y.logarithmic   ? "set logscale xy\n"
                  : axes.x.logarithmic ? "set logscale x\n"
                                       : "",
                  axes.x.low, axes.x.high, axes.y.low, axes.y.high, tick_command('x', axes.x_ticks),
                  tick_command('y', axes.y_ticks));
  if (curves.rule)
    commands += fmt::format(
        "set arrow from graph 0,first {0} to graph 1,first {0} nohead linewidth 1.5 dashtype 2 "
        "linecolor rgb '{1}'\n",
        *curves.rule, kInk);
  return commands;
}

}  // namespace

std::string curves_script(const Curves& curves) {
  std::vector<CurvePanel> panels = curves.panels;
  if (panels.empty()) panels = {{"", curves.y_axis, curves.lines}};
  const bool single = panels.size() == 1;
  const int columns = single ? 1 : std::min<int>(curves.columns, static_cast<int>(panels.size()));
  const int lines = (static_cast<int>(panels.size()) + columns - 1) / columns;
  const int panel_height = single ? 290 : columns == 1 ? 200 : 150;
  const int gap = single ? 0 : 58;
  const int height = lines * panel_height + (lines - 1) * gap + (single ? 0 : kLine);
  const int cell = (kCanvasWidth - kEdge - kLine) / columns;
  Legend legend{{}, curves.x_axis};
  std::set<std::string> named;
  std::string data, commands = single ? "" : "set multiplot\n";
  bool any = false;
  int first_left = 0;
  for (size_t p = 0; p < panels.size(); ++p) {
    const CurvePanel& panel = panels[p];
    // The ticks' room decides the width, and the width hardly the ticks: twice is enough.
    CurveAxes axes = axes_of(curves, panel.lines, cell - 60, panel_height);
    if (!axes.any) continue;
    const int margin = tick_room(axes.y_ticks) + 4;
    axes = axes_of(curves, panel.lines, cell - margin - 8, panel_height);
    const int column = static_cast<int>(p) % columns, line = static_cast<int>(p) / columns;
    const int left = kLine + column * cell + margin;
    const int top = (single ? 0 : kLine) + line * (panel_height + gap);
    if (!any) first_left = left;
    any = true;
    const DrawnPanel drawn = draw_lines(curves, panel.lines, fmt::format("$line_{}", p));
    data += drawn.data;
    commands +=
        fmt::format("set lmargin at {}\nset rmargin at {}\nset tmargin at {}\nset bmargin at {}\n",
                    across(left), across(kLine + (column + 1) * cell - 8), down(top, height),
                    down(top + panel_height, height));
    commands += axis_commands(curves, axes) + label_commands(curves, panel.lines, axes);
    if (!panel.name.empty())
      commands += fmt::format("set label {} at {},{} left textcolor rgb '{}'\n",
                              quoted(shortened(panel.name, static_cast<size_t>(cell / kLetter))),
                              across(left), down(top - 12, height), kInk);
    if (columns == 1)
      commands += vertical_label(panel.y_axis.empty() ? curves.y_axis : panel.y_axis, top,
                                 top + panel_height, height);
    else if (p == 0)
      commands += vertical_label(curves.y_axis, 0, height, height);
    commands += fmt::format(
        "set style circle radius screen 0.008\nset grid xtics ytics linetype 1 linewidth 0.5 "
        "linecolor rgb '{}' dashtype 3\nplot {}\n",
        kInk, drawn.plot);
    if (!single) commands += "unset label\nunset object\nunset arrow\n";
    for (const ChartLine& one : panel.lines) {
      if (!one.dashed && !one.points.empty() && named.insert(one.name).second)
        legend.entries.push_back({one.color, one.name, one.joined});
    }
  }
  if (!any) return "";
  if (!single) commands += "unset multiplot\n";
  return script(
      curves.name,
      {.title = curves.title, .left = first_left, .plot_height = height, .legend = legend}, data,
      commands);
}

}  // namespace veil
