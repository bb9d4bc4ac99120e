// Clipping modes by sequence lengths: the figures of `veil suite llama3-dp` and `veil suite bottlenecks`, and of seed 000's own result files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/table.h"
#include "report/fits.h"
#include "report/records.h"

namespace veil {

// llama3-dp, or records without a suite that all name a mode and a sequence length.
bool is_llama3_suite(const std::vector<Record>& records);
bool is_bottleneck_suite(const std::vector<Record>& records);

struct ModeFigures {
  const Record* record = nullptr;
  std::string mode;
  int64_t length = 0;
  std::optional<double> ms, spread_ms, bytes;             // nothing unless it ended well
  std::optional<double> more_bytes, more_ms, more_share;  // against no_dp at the same length
};
std::vector<ModeFigures> mode_figures(const std::vector<Record>& records);
std::vector<std::string> modes_of(const std::vector<ModeFigures>& all);  // in the order of the records
std::vector<int64_t> lengths_of(const std::vector<ModeFigures>& all);    // shortest first
const ModeFigures* find_mode(const std::vector<ModeFigures>& all, const std::string& mode, int64_t length);

// Every metric, and the overheads against no_dp.
Table mode_table(const std::vector<Record>& records);

// How one part of a step, or of the peak, grows with the length.
struct PartGrowth {
  std::string mode, part;
  std::optional<PowerFit> fit;
  double longest = 0, share = 0;  // at the longest length: the amount, and its share of the whole
};
// Parts of the step by share, the largest first; "step" is the whole.
std::vector<PartGrowth> time_growth(const std::vector<Record>& records, const std::string& mode);
std::vector<PartGrowth> memory_growth(const std::vector<Record>& records,
                                      const std::string& mode);  // "peak" is the whole
Table growth_table(const std::vector<Record>& records);

}  // namespace veil
