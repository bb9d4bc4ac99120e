// The frame that all plots share: a gnuplot script that draws one picture as SVG and as PNG.
#pragma once

#include <string>
#include <vector>

namespace veil {

constexpr const char* kInk = "#767676";  // of text and axes: 4.5 : 1 against white and against black
constexpr int kLetter = 8;               // pixels that a letter takes, generously

// Text in gnuplot's single quotes, where nothing is expanded; quotes, control characters and backslashes are replaced.
std::string quoted(const std::string& text);
size_t letters(const std::string& text);  // of UTF-8
// At most so many letters, with "…" where it was cut.
std::string shortened(const std::string& text, size_t most);

// What stands under the axes, laid out here for the whole width: gnuplot's own key is cut where the plot is narrow.
struct Legend {
  struct Entry {
    std::string color, text;
    bool line = false;
  };
  std::vector<Entry> entries;
  std::string unit;  // of the horizontal axis
};

struct Canvas {
  std::string title;  // in the PNG, which travels alone; a page gives an SVG its title
  int left;           // pixels for the labels of the vertical axis
  int plot_height;    // pixels between the axes
  Legend legend;
};

// `data` are datablocks, `commands` end in a plot command. gnuplot's variables plot_top and plot_bottom are the room between the axes, as shares of the screen.
std::string script(const std::string& name, const Canvas& canvas, const std::string& data, const std::string& commands);

}  // namespace veil
