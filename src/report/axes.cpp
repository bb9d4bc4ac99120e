#include "report/axes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/canvas.h"

namespace veil {
namespace {

constexpr double kTextHeight = 17;
constexpr double kMark = 6;  // pixels around a point that no text may touch

struct TextBox {
  double left, right, bottom, top;

  bool touches(const TextBox& other) const {
    return left < other.right && other.left < right && bottom < other.top && other.bottom < top;
  }
};

std::string tick_text(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  return size >= 1e12 || size < 1e-6 ? fmt::format("{:.3g}", value)
         : size >= 1e5               ? fmt::format("{:.0f}", value)
                                     : fmt::format("{:.8g}", value);
}

double text_pixels(const std::string& text) {
  return static_cast<double>(kLetter) * static_cast<double>(letters(text));
}

}  // namespace

double PlotAxis::to_pixels(double value) const {
  const double share =
      logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return share * pixels;
}

double PlotAxis::from_pixels(double at) const {
  const double share = at / pixels;
  return logarithmic ? low * std::pow(high / low, share) : low + share * (high - low);
}

std::vector<Tick> round_ticks(const PlotAxis& axis, int most) {
  std::vector<Tick> ticks;
  const double room = axis.high - axis.low;
  if (!(room > 0) || !std::isfinite(room)) return ticks;
  if (axis.logarithmic) {
    for (double decade = std::pow(10, std::floor(std::log10(axis.low))); decade <= axis.high;
         decade *= 10) {
      for (const double step : {1, 2, 5}) {
        const double at = step * decade;
        if (at >= axis.low && at <= axis.high) ticks.push_back({at, tick_text(at)});
      }
    }
    // Powers of ten alone where there are many decades.
    if (static_cast<int>(ticks.size()) > 2 * most)
      std::erase_if(ticks, [](const Tick& tick) { return tick.text.find_first_of("25") == 0; });
    return ticks;
  }
  const double rough = room / std::max(1, most);
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * decade >= rough * 0.999) step = factor * decade;
  }
  const auto first = static_cast<int64_t>(std::ceil(axis.low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(axis.high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    const double at = static_cast<double>(i) * step;
    ticks.push_back({at, tick_text(at)});
  }
  return ticks;
}

std::vector<Tick> without_overlaps(std::vector<Tick> ticks, const PlotAxis& axis) {
  std::sort(ticks.begin(), ticks.end(), [](const Tick& a, const Tick& b) { return a.at < b.at; });
  const auto apart = [&](const Tick& a, const Tick& b) {
    return axis.to_pixels(b.at) - axis.to_pixels(a.at) >
           (text_pixels(a.text) + text_pixels(b.text)) / 2 + 4;
  };
  std::vector<Tick> kept;
  for (size_t i = 0; i < ticks.size(); ++i) {
    if (!kept.empty() && !apart(kept.back(), ticks[i])) continue;
    const bool last = i + 1 == ticks.size();
    if (!last && !kept.empty() && !apart(ticks[i], ticks.back())) continue;
    kept.push_back(ticks[i]);
  }
  return kept;
}

std::string tick_command(char axis, const std::vector<Tick>& ticks) {
  std::vector<std::string> marks;
  for (const Tick& tick : ticks) marks.push_back(fmt::format("{} {}", quoted(tick.text), tick.at));
  return marks.empty() ? fmt::format("unset {}tics\n", axis)
                       : fmt::format("set {}tics ({})\n", axis, join(marks, ", "));
}

int tick_room(const std::vector<Tick>& ticks) {
  double widest = 8;
  for (const Tick& tick : ticks) widest = std::max(widest, text_pixels(tick.text));
  return static_cast<int>(widest) + 10;
}

std::vector<std::optional<LabelPlace>> place_labels(const std::vector<LabelledPoint>& points,
                                                    int width, int height) {
  std::vector<TextBox> taken;
  for (const LabelledPoint& point : points)
    taken.push_back({point.x - kMark, point.x + kMark, point.y - kMark, point.y + kMark});
  std::vector<std::optional<LabelPlace>> places;
  for (const LabelledPoint& point : points) {
    places.emplace_back();
    if (point.text.empty()) continue;
    const double wide = text_pixels(point.text);
    for (const double far : {8.0, 14.0, 22.0, 32.0}) {
      // Right, left, above, below, then the corners.
      const LabelPlace tries[] = {{point.x + far, point.y},
                                  {point.x - far - wide, point.y},
                                  {point.x - wide / 2, point.y + far + 3},
                                  {point.x - wide / 2, point.y - far - 3},
                                  {point.x + far, point.y + far},
                                  {point.x + far, point.y - far},
                                  {point.x - far - wide, point.y + far},
                                  {point.x - far - wide, point.y - far}};
      for (const LabelPlace& place : tries) {
        const TextBox box{place.x, place.x + wide, place.y - kTextHeight / 2,
                          place.y + kTextHeight / 2};
        const bool inside =
            box.left >= 0 && box.right <= width && box.bottom >= 0 && box.top <= height;
        if (!inside || std::any_of(taken.begin(), taken.end(),
                                   [&](const TextBox& other) { return box.touches(other); }))
          continue;
        places.back() = place;
        taken.push_back(box);
        break;
      }
      if (places.back()) break;
    }
  }
  return places;
}

}  // namespace veil
