#include "report/charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "report/bars.h"

namespace veil {
namespace {

constexpr int kPanelPixels = 230;
constexpr int kGapPixels = 44;       // between two panels
constexpr double kBarWidth = 0.8;    // of a group's room
constexpr size_t kMostFigures = 16;  // bars with a figure above them; more would overlap
constexpr size_t kMostLarge = 9;     // beyond this the figures are smaller

std::string panel_commands(const GroupedBars& bars, const BarPanel& panel,
                           const std::string& data_name) {
  const auto count = static_cast<double>(panel.series.size());
  const double width = kBarWidth / std::max(1.0, count);
  double highest = 0, lowest = 0;
  std::string labels;
  std::vector<std::string> parts;
  const size_t all = panel.series.size() * bars.groups.size();
  const bool figures = all <= kMostFigures;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const BarSeries& series = panel.series[s];
    const double shift = (static_cast<double>(s) - (count - 1) / 2) * width;
    bool whiskers = false;
    for (size_t g = 0; g < series.values.size(); ++g) {
      if (!series.values[g]) continue;
      const auto& [value, spread] = *series.values[g];
      highest = std::max(highest, value + spread);
      lowest = std::min(lowest, value - spread);
      whiskers = whiskers || spread > 0;
      if (figures) {
        labels +=
            fmt::format("set label {} at {},{} center offset 0,{} {}textcolor rgb '{}'\n",
                        quoted(panel.shown(value)), static_cast<double>(g) + shift,
                        value < 0 ? value - spread : value + spread, value < 0 ? "-0.7" : "0.6",
                        all > kMostLarge ? "font ',10' " : "", kInk);
      }
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
  const double room = std::max(highest - lowest, 1e-12);
  return fmt::format(
      "set boxwidth {} absolute\nset ylabel {} textcolor rgb '{}'\nset xrange [-0.5:{}]\nset "
      "yrange [{}:{}]\nset xtics "
      "({})\nset grid ytics linetype 1 linewidth 0.5 linecolor rgb '{}' dashtype 3\n{}plot {}\n",
      width * 0.94, quoted(panel.axis), kInk, static_cast<double>(bars.groups.size()) - 0.5,
      lowest < 0 ? lowest - 0.14 * room : 0, highest > 0 ? highest + 0.14 * room : 0.05 * room,
      join(tics, ", "), kInk, labels, join(parts, ", \\\n     "));
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

}  // namespace

std::string series_color(size_t place) {
  return kOkabeIto[place % kOkabeIto.size()];
}

std::string grouped_script(const GroupedBars& bars) {
  Legend legend{{}, bars.group_axis};
  std::set<std::string> named;
  std::string data;
  for (size_t p = 0; p < bars.panels.size(); ++p) {
    for (const BarSeries& series : bars.panels[p].series) {
      if (named.insert(series.name).second) legend.entries.push_back({series.color, series.name});
    }
    data += panel_data(bars, bars.panels[p], fmt::format("$panel_{}", p));
  }
  const int count = static_cast<int>(bars.panels.size());
  const int height = count * kPanelPixels + (count - 1) * kGapPixels;
  std::string commands = count > 1 ? "set multiplot\n" : "";
  for (int p = 0; p < count; ++p) {
    // Shares of the room between the axes, from the top; plot_top and plot_bottom are the frame's.
    const double top = static_cast<double>(p * (kPanelPixels + kGapPixels)) / height;
    const double bottom = top + static_cast<double>(kPanelPixels) / height;
    if (count > 1) {
      commands += fmt::format(
          "set tmargin at screen (plot_top-{0:.5f}*(plot_top-plot_bottom))\n"
          "set bmargin at screen (plot_top-{1:.5f}*(plot_top-plot_bottom))\n",
          top, bottom);
    }
    commands +=
        panel_commands(bars, bars.panels[static_cast<size_t>(p)], fmt::format("$panel_{}", p));
    if (p + 1 < count) commands += "unset label\nunset object\n";
  }
  if (count > 1) commands += "unset multiplot\n";
  return script(bars.name,
                {.title = bars.title, .left = 84, .plot_height = height, .legend = legend}, data,
                commands);
}

std::string curves_script(const Curves& curves) {
  Legend legend{{}, curves.x_axis};
  std::string data, labels;
  std::vector<std::string> parts;
  double x_low = INFINITY, x_high = 0, y_low = INFINITY, y_high = 0;
  std::set<double> ticks;
  for (size_t i = 0; i < curves.lines.size(); ++i) {
    const ChartLine& line = curves.lines[i];
    std::string rows;
    bool spread = false;
    for (const ChartPoint& point : line.points) {
      if (curves.logarithmic && (point.x <= 0 || point.y <= 0)) continue;
      rows += fmt::format("{} {} {}\n", point.x, point.y, point.spread);
      x_low = std::min(x_low, point.x), x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y), y_high = std::max(y_high, point.y + point.spread);
      spread = spread || point.spread > 0;
      if (!line.dashed) ticks.insert(point.x);
      if (!point.label.empty())
        labels += fmt::format("set label {} at {},{} left offset 0.7,0.4 textcolor rgb '{}'\n",
                              quoted(point.label), point.x, point.y, kInk);
    }
    if (rows.empty()) continue;
    const std::string block = fmt::format("$line_{}", i);
    data += fmt::format("{} << EOD\n{}EOD\n", block, rows);
    parts.push_back(
        fmt::format("{} using 1:2 with lines linewidth {} dashtype {} linecolor rgb '{}'", block,
                    line.dashed ? 1 : 2, line.dashed ? 2 : 1, line.color));
    if (!line.dashed) {
      parts.push_back(
          fmt::format("{} using 1:2 with circles fillstyle solid 1 noborder linecolor rgb '{}'",
                      block, line.color));
      if (spread && !curves.logarithmic)
        parts.push_back(fmt::format(
            "{} using 1:($2-$3):(0):(2*$3) with vectors nohead linewidth 1 linecolor rgb '{}'",
            block, line.color));
      legend.entries.push_back({line.color, line.name, true});
    }
  }
  if (parts.empty()) return "";
  std::string axes;
  if (curves.logarithmic) {
    std::vector<std::string> marks;
    for (const double x : ticks) marks.push_back(fmt::format("{:.6g}", x));
    // A decade alone would often leave one mark or none.
    std::vector<std::string> heights;
    for (double decade = std::pow(10, std::floor(std::log10(y_low / 1.5))); decade < y_high * 1.5;
         decade *= 10) {
      for (const double step : {1, 2, 5}) heights.push_back(fmt::format("{:.6g}", step * decade));
    }
    axes = fmt::format(
        "set logscale xy\nset xrange [{}:{}]\nset yrange [{}:{}]\nset xtics ({})\nset ytics ({})\n",
        x_low / 1.15, x_high * 1.15, y_low / 1.5, y_high * 1.5, join(marks, ", "),
        join(heights, ", "));
  } else {
    axes = fmt::format("set xrange [0:{}]\nset yrange [0:{}]\nset xtics autofreq\n",
                       x_high > 0 ? 1.2 * x_high : 1, y_high > 0 ? 1.15 * y_high : 1);
  }
  const std::string commands = fmt::format(
      "set style circle radius screen 0.008\nset ylabel {} textcolor rgb '{}'\nset grid xtics "
      "ytics linetype 1 "
      "linewidth 0.5 linecolor rgb '{}' dashtype "
      "3\n{}{}plot {}\n",
      quoted(curves.y_axis), kInk, kInk, axes, labels, join(parts, ", \\\n     "));
  return script(curves.name,
                {.title = curves.title, .left = 84, .plot_height = 290, .legend = legend}, data,
                commands);
}

}  // namespace veil
