// Axes whose ends, marks and labels are placed here rather than by gnuplot, which moves labels out
// of the picture where the marks' text is wide and draws texts over each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

// An axis of `pixels` length from `low` to `high`.
struct PlotAxis {
  double low = 0, high = 1;
  int pixels = 100;
  bool logarithmic = false;

  double to_pixels(double value) const;
  double from_pixels(double pixels) const;
};

struct Tick {
  double at;
  std::string text;
};
// Round values within the axis, about `most` of them. Of a logarithmic axis: 1, 2 and 5 times
// powers of ten. Never "1e+03".
std::vector<Tick> round_ticks(const PlotAxis& axis, int most);
// Those whose texts do not touch on a horizontal axis; the first and the last stay if they can.
std::vector<Tick> without_overlaps(std::vector<Tick> ticks, const PlotAxis& axis);
// "set xtics (...)" for 'x' or 'y'; ends in a new line.
std::string tick_command(char axis, const std::vector<Tick>& ticks);
// Pixels that the texts of these marks take beside a vertical axis.
int tick_room(const std::vector<Tick>& ticks);

// A point's label: where its left end and its middle are, in pixels from the lower left corner.
struct LabelPlace {
  double x, y;
};
struct LabelledPoint {
  double x, y;  // in pixels from the lower left corner
  std::string text;
};
// For each point a place beside it where its text touches neither a point nor another text nor the
// end of the picture; nothing if there is none.
std::vector<std::optional<LabelPlace>> place_labels(const std::vector<LabelledPoint>& points,
                                                    int width, int height);

}  // namespace veil
