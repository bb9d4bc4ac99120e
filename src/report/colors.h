// Colours of pictures. Known modes, strategies, memory categories and phases have the same colour
// in every picture of every page; no colour occurs twice in one picture.
#pragma once

#include <string>
#include <vector>

namespace veil {

// Colours for series that have none of their own, by index: the palette of Okabe and Ito, which
// people with any colour vision tell apart, then Tol's, then hues that never repeat.
std::string series_color(size_t place);

// A clipping mode under any of its names; others get a colour by `place`.
std::string mode_color(const std::string& mode, size_t place = 0);
// A strategy: ddp, zero2 or zero3; others get a colour by `place`.
std::string strategy_color(const std::string& strategy, size_t place = 0);

// One colour for each of these memory categories, or for each of these phases of a step.
std::vector<std::string> colors_of(const std::vector<std::string>& parts);

}  // namespace veil
