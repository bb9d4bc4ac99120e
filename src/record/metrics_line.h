// One line of a training run's metrics.jsonl: a step, or an evaluation on held-out data.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace veil {

struct MetricsLine {
  int64_t step = 0;
  // A step. A private one has epsilon and the fields behind it.
  std::optional<int64_t> epoch = {};
  std::optional<double> loss = {}, grad_norm = {}, learning_rate = {};
  std::optional<double> epsilon = {}, clip_norm = {}, below_clip_norm = {};
  std::optional<int64_t> samples = {}, bad_samples = {};
  std::optional<double> seconds = {}, tokens_per_second = {}, waited_for_data_seconds = {},
                        left_seconds = {}, mfu = {};
  std::optional<int64_t> peak_memory_bytes = {};
  // An evaluation.
  std::optional<double> held_out_loss = {}, held_out_accuracy = {}, held_out_perplexity = {};
  std::optional<int64_t> held_out_samples = {}, held_out_tokens = {};
  std::vector<std::string> not_private = {};  // fields that the guarantee does not cover
  std::string held_out_weights = "";          // "average": not the weights themselves

  bool is_step() const { return learning_rate.has_value(); }
};

nlohmann::ordered_json to_json(const MetricsLine& line);
// DamagedRecordError if a value has another type.
MetricsLine metrics_line_from_json(const nlohmann::ordered_json& json);

}  // namespace veil
