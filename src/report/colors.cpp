#include "report/colors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace veil {
namespace {

using ColorTable = std::map<std::string, std::string>;

// Okabe and Ito's, with two greys instead of black, which a dark page would hide; then Tol's.
const std::vector<std::string>& palette() {
  static const std::vector<std::string> colors = {
      "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#AAAAAA",
      "#666666", "#AA4499", "#44AA99", "#999933", "#DDCC77", "#88CCEE", "#882255"};
  return colors;
}

// A colour of this hue (0 to 1) that is readable on white and on black.
std::string hue_color(double hue) {
  const auto part = [&](double shift) {
    const double t = std::fmod(hue + shift, 1.0) * 6;
    const double level = std::clamp(std::abs(t - 3) - 1, 0.0, 1.0);
    return static_cast<int>(std::lround(255 * (0.25 + 0.5 * level)));
  };
  return fmt::format("#{:02X}{:02X}{:02X}", part(0), part(2.0 / 3), part(1.0 / 3));
}

std::string found_or(const ColorTable& table, const std::string& key, size_t place) {
  const auto found = table.find(key);
  if (found != table.end()) return found->second;
  // Not one that the table gives to another.
  for (size_t next = 0;; ++next) {
    const std::string color = series_color(next);
    const bool taken = std::any_of(table.begin(), table.end(),
                                   [&](const auto& entry) { return entry.second == color; });
    if (!taken && place-- == 0) return color;
  }
}

}  // namespace

std::string series_color(size_t place) {
  if (place < palette().size()) return palette()[place];
  // Steps of the golden ratio never come back to a hue.
  return hue_color(std::fmod(0.618033988749895 * static_cast<double>(place), 1.0));
}

std::string mode_color(const std::string& mode, size_t place) {
  static const ColorTable table = {
      {"no-dp", "#666666"},       {"vanilla", "#666666"},
      {"auto", "#0072B2"},        {"ghost", "#E69F00"},
      {"ghost-fsdp", "#F0E442"},  {"flash", "#009E73"},
      {"flash-clip", "#009E73"},  {"flash-fsdp", "#56B4E9"},
      {"bookkeeping", "#D55E00"}, {"flash-clip-bookkeeping", "#CC79A7"},
      {"materialize", "#999933"}};
  return found_or(table, canonical(mode), place);
}

std::string strategy_color(const std::string& strategy, size_t place) {
  static const ColorTable table = {{"ddp", "#0072B2"}, {"zero2", "#E69F00"}, {"zero3", "#009E73"}};
  return found_or(table, canonical(strategy), place);
}

std::vector<std::string> colors_of(const std::vector<std::string>& parts) {
  static const ColorTable fixed = {
      // Memory.
      {"parameters", "#0072B2"},
      {"optimizer", "#56B4E9"},
      {"gradients", "#D55E00"},
      {"activations", "#E69F00"},
      {"clip_records", "#CC79A7"},
      {"norms", "#F0E442"},
      {"temporary", "#AAAAAA"},
      {"communication", "#009E73"},
      {"data", "#666666"},
      // Time. A private step has more phases than Okabe and Ito have colours.
      {"computing", "#0072B2"},
      {"forward", "#0072B2"},
      {"loss", "#56B4E9"},
      {"backward", "#E69F00"},
      {"first_backward", "#B15928"},
      {"backward_and_norms", "#FDB863"},
      {"backward_and_kept_norms", "#C2A5CF"},
      {"second_backward", "#882255"},
      {"kept_norms", "#A6D854"},
      {"coefficients", "#DDCC77"},
      {"second_loss", "#88CCEE"},
      {"weight_grad", "#AA4499"},
      {"combine", "#999933"},
      {"noise", "#44AA99"},
      {"update", "#CC79A7"},
      {"noise_update", "#6A5ACD"},
      {"combine_noise_update", "#7FC7B8"},
      {"recompute", "#80604D"},
      {"wait for gather", "#009E73"},
      {"wait for reduce", "#D55E00"},
      {"wait for copy", "#B2DF8A"},
      {"gap", "#D0D0D0"},
      {"host gap", "#D0D0D0"},
      {"rest", "#8DA0CB"},
      {"other", "#AAAAAA"}};
  std::vector<std::string> colors;
  for (const std::string& part : parts) {
    const auto found = fixed.find(part);
    colors.push_back(found == fixed.end() ? "" : found->second);
  }
  size_t next = 0;
  for (std::string& color : colors) {
    while (color.empty()) {
      const std::string candidate = series_color(next++);
      if (std::find(colors.begin(), colors.end(), candidate) == colors.end()) color = candidate;
    }
  }
  return colors;
}

}  // namespace veil
