#include "report/canvas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"

namespace veil {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '`') {
      out += "’";
    } else if (c == '\\') {
      out += '/';
    } else {
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out + "'";
}

std::string picture_name(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 60))
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '-'
               ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
               : '_';
  return out;
}

size_t letters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string shortened(const std::string& text, size_t most) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) == 0x80) continue;
    if (++count > most) return text.substr(0, i) + "…";
  }
  return text;
}

std::string down(double pixels, int plot_height) {
  return fmt::format("screen (plot_top-{:.5f}*(plot_top-plot_bottom))", pixels / plot_height);
}

std::string across(double pixels) {
  return fmt::format("screen {:.5f}", pixels / kCanvasWidth);
}

std::string vertical_label(const std::string& text, int from, int to, int plot_height) {
  const auto most = static_cast<size_t>(std::max(4, (to - from + 20) / kLetter));
  return fmt::format("set label {} at {},{} center rotate by 90 textcolor rgb '{}'\n",
                     quoted(shortened(text, most)), across(12),
                     down((from + to) / 2.0, plot_height), kInk);
}

namespace {

// A canvas with or without its title: margins, the axis's unit and the legend, placed by pixels.
struct Frame {
  int height;
  std::string commands;
};

Frame frame(const Canvas& canvas, bool titled) {
  // Entries in lines, each as wide as its text.
  std::vector<std::pair<int, int>> places;  // x, line
  int x = 8, line = 0;
  for (const Legend::Entry& entry : canvas.legend.entries) {
    const int width = 22 + kLetter * static_cast<int>(letters(entry.text)) + 16;
    if (x > 8 && x + width > kCanvasWidth) {
      x = 8;
      ++line;
    }
    places.emplace_back(x, line);
    x += width;
  }
  const int legend_height = canvas.legend.entries.empty() ? 0 : (line + 1) * kLine + 8;
  const int top = titled ? kEdge + kLine + 8 : kEdge, bottom = 28 + kLine + legend_height;
  const int height = top + canvas.plot_height + bottom;
  const auto up = [&](double pixels) { return fmt::format("screen {:.5f}", pixels / height); };
  const auto label = [&](const std::string& text, double from_left, double from_bottom,
                         const char* side) {
    return fmt::format("set label {} at {},{} {} textcolor rgb '{}'\n", quoted(text),
                       across(from_left), up(from_bottom), side, kInk);
  };
  std::string commands = fmt::format(
      "set style fill solid 1 noborder\n"
      "set border 0\n"
      "set nokey\n"
      "set format '%.8g'\n"
      "set tics nomirror scale 0 textcolor rgb '{}'\n"
      "set lmargin at {}\nset rmargin at {}\nset tmargin at {}\nset bmargin at {}\n"
      "plot_top = {:.5f}\nplot_bottom = {:.5f}\n",
      kInk, across(canvas.left), across(kCanvasWidth - kEdge), up(height - top), up(bottom),
      static_cast<double>(height - top) / height, static_cast<double>(bottom) / height);
  commands += label(canvas.legend.unit, (canvas.left + kCanvasWidth - kEdge) / 2.0,
                    legend_height + kLine / 2.0, "center");
  if (titled)
    commands += label(shortened(canvas.title, 60), 8, height - kEdge - kLine / 2.0 + 4, "left");
  for (size_t i = 0; i < places.size(); ++i) {
    const Legend::Entry& entry = canvas.legend.entries[i];
    const double y = legend_height - 8 - kLine * places[i].second - kLine / 2.0;
    commands += fmt::format(
        "set object rectangle center {},{} size {},{} fillcolor rgb '{}' fillstyle solid 1 "
        "noborder\n",
        across(places[i].first + 8), up(y), across(14), up(entry.line ? 2 : 12), entry.color);
    commands += label(entry.text, places[i].first + 22, y, "left");
  }
  return {height, commands};
}

}  // namespace

std::string script(const std::string& name, const Canvas& canvas, const std::string& data,
                   const std::string& commands) {
  VEIL_CHECK(std::all_of(name.begin(), name.end(),
                         [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; }),
             "a picture's name would be read as commands: {}", name);
  const Frame bare = frame(canvas, false), titled = frame(canvas, true);
  return fmt::format(
      "# `gnuplot {0}.gp` draws {0}.svg and {0}.png beside it.\n"
      "{1}"
      "set encoding utf8\n"
      "set terminal svg size {2},{3} font 'sans-serif,14' noenhanced\n"
      "set output '{0}.svg'\n"
      "{4}{5}"
      "reset\n"
      "set terminal pngcairo size {6},{7} font 'sans,14' fontscale 1.45 linewidth 2 noenhanced "
      "background '#ffffff'\n"
      "set output '{0}.png'\n"
      "{8}{5}"
      "set output\n",
      name, data, kCanvasWidth, bare.height, bare.commands, commands, 2 * kCanvasWidth,
      2 * titled.height, titled.commands);
}

}  // namespace veil
