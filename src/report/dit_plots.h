// The three plots of `veil suite dit-dp`.
#pragma once

#include "report/plots.h"

namespace veil {

bool is_dit_suite(const std::vector<Record>& records);
std::vector<Plot> dit_plots(const std::vector<Record>& records);

}  // namespace veil
