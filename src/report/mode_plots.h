// The pictures of the suites that compare clipping modes by sequence lengths.
#pragma once

#include "report/mode_figures.h"
#include "report/plots.h"

namespace veil {

// memory_comparison, time_comparison, memory_vs_time_tradeoff, overhead_analysis.
std::vector<Plot> llama3_plots(const std::vector<Record>& records);
// phases_by_length, time_scaling, memory_scaling, and time_scaling_<mode> phase by phase.
std::vector<Plot> bottleneck_plots(const std::vector<Record>& records);

}  // namespace veil
