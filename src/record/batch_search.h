// What `veil find-batch` found: its max_batch_sizes.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace veil {

// How a batch size was found to fit or not.
struct BatchTrial {
  int64_t batch_size = 0;
  bool fits = false;
  // "run": it ran, or ran out of memory; "limit": it ran and took more than the limit; "estimate":
  // it was not run.
  std::string by;
  int64_t peak_memory_bytes = 0;
};

struct StrategyBatch {
  std::string strategy;
  int64_t max_batch_size = 0, max_total_batch_size = 0;  // 0: not even a batch of 1 fits
  std::optional<int64_t> peak_memory_bytes = {};
  std::optional<double> tokens_per_second = {};
  std::optional<BatchTrial> too_large = {};  // none: the largest batch that may be tried fits
  std::optional<std::vector<std::string>> remedies = {};
  std::vector<BatchTrial> trials = {};
};

struct BatchSearch {
  std::string command, model;
  int64_t seq_length = 0, world = 1, memory_limit_bytes = 0;
  std::vector<StrategyBatch> strategies;
};

nlohmann::ordered_json to_json(const BatchSearch& search);
// DamagedRecordError if a value has another type.
BatchSearch batch_search_from_json(const nlohmann::ordered_json& json);

}  // namespace veil
