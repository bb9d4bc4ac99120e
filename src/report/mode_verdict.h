// Words about clipping modes: what privacy costs (seed 000), and where its time and memory go (seed 001).
#pragma once

#include "report/mode_figures.h"
#include "report/verdict.h"

namespace veil {

Verdict judge_llama3(const RecordFolder& folder, std::vector<std::string> caveats);
Verdict judge_bottlenecks(const RecordFolder& folder, std::vector<std::string> caveats);

// The largest part of a step at the longest length.
struct Bottleneck {
  std::string mode, part;
  int64_t length = 0;
  double ms = 0, share = 0;
  std::optional<PowerFit> fit;
};
std::optional<Bottleneck> bottleneck_of(const std::vector<Record>& records, const std::string& mode);
// What can be done about a part of a step, or about a category that fills the peak; none: nothing of this program's can.
std::vector<std::string> advice_on_time(const Record& record, const std::string& part);
std::vector<std::string> advice_on_memory(const Record& record, const std::string& category);

}  // namespace veil
