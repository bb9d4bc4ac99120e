// What `veil suite zero` compares (docs/zero.md says what each figure means).
#pragma once

#include <string>
#include <vector>

#include "base/table.h"
#include "report/records.h"

namespace veil {

bool is_zero_suite(const std::vector<Record>& records);

// One configuration's figures. Times are a step's; in a simulated world those of the modelled step.
struct ZeroFigures {
  const Record* record = nullptr;
  std::string strategy;
  int64_t batch = 0, accumulation = 1;
  bool ok = false;
  std::optional<double> tokens_per_second, tokens_deviation, step_ms;
  std::optional<double> peak_bytes, mean_bytes;  // of the rank that holds most
  std::optional<double> communication_ms,
      communication_share;            // gather and reduce: total, and the exposed share of a step
  std::optional<double> data_share;   // of a step: waiting for a batch and bringing it to the device
  std::optional<double> utilisation;  // percent, NVML
  std::optional<double> computing;    // percent of a step in which the compute lane computed
};
std::vector<ZeroFigures> zero_figures(const std::vector<Record>& records);

Table zero_table(const std::vector<Record>& records);
std::string zero_csv(const std::vector<Record>& records);
// The records as they stand, in one array.
std::string raw_metrics(const RecordFolder& folder);

// "" or "communication modelled at 200 GB/s".
std::string modelled_words(const std::vector<Record>& records);
std::string percent_text(double share);  // 0.123 as "12%"

}  // namespace veil
