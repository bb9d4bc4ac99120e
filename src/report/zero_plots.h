// The five plots of `veil suite zero`.
#pragma once

#include "report/plots.h"
#include "report/zero_tables.h"

namespace veil {

std::vector<Plot> zero_plots(const std::vector<Record>& records);

}  // namespace veil
