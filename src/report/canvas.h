// The frame that all plots share: a gnuplot script that draws one picture as SVG and as PNG.
#pragma once

#include <string>
#include <vector>

namespace veil {

// Text and axes: a contrast of 4.5 : 1 against white and against black.
constexpr const char* kInk = "#767676";
constexpr int kLetter = 8;  // pixels that a letter takes, generously
// Pixels of the canvas: small, so that letters stay readable on a phone.
constexpr int kCanvasWidth = 540;
constexpr int kEdge = 14;  // pixels left free above and to the right
constexpr int kLine = 22;  // pixels from one line of text to the next

// Text in gnuplot's single quotes, where nothing is expanded; quotes, control characters and
// backslashes are replaced.
std::string quoted(const std::string& text);
// A name for files, of letters, digits, '-' and '_': a record's text may be part of it.
std::string picture_name(const std::string& text);
size_t letters(const std::string& text);  // of UTF-8
// At most `most` letters; "…" marks a cut.
std::string shortened(const std::string& text, size_t most);

// The legend under the axes. It is laid out here over the whole width, because gnuplot cuts its own
// key in narrow plots.
struct Legend {
  struct Entry {
    std::string color, text;
    bool line = false;
  };
  std::vector<Entry> entries;
  std::string unit;  // of the horizontal axis
};

struct Canvas {
  std::string title;  // drawn in the PNG only; a page shows it above the SVG
  int left;           // pixels for the labels of the vertical axis
  int plot_height;    // pixels between the axes
  Legend legend;
};

// `name` is a picture_name, `data` are datablocks, `commands` end in a plot command. The gnuplot
// variables plot_top and plot_bottom bound the plot area, in screen coordinates.
std::string script(const std::string& name, const Canvas& canvas, const std::string& data,
                   const std::string& commands);

// A text at the left edge that reads upwards, in the middle between `from` and `to`: pixels down
// from the top of the plot area, whose height is `plot_height`.
std::string vertical_label(const std::string& text, int from, int to, int plot_height);
// "screen (...)": so many pixels down from the top of the plot area, or right of the left edge.
std::string down(double pixels, int plot_height);
std::string across(double pixels);

}  // namespace veil
