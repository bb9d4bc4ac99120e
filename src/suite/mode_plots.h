// Pictures of clipping modes by sequence lengths.
#pragma once

#include <vector>

#include "report/peers.h"
#include "report/plots.h"

namespace veil {

// Peak memory, time, both against each other, and what privacy costs over no_dp.
std::vector<Plot> mode_plots(const std::vector<Record>& records);

// Time and memory of a private step over one that is not, against the tokens in a sample, a curve
// per mode and per peer. None without a pair of records to divide.
std::vector<Plot> privacy_cost_plots(const std::vector<Record>& records, const Peers& peers);

}  // namespace veil
