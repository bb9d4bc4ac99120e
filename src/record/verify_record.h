// What `veil verify` found: every private step against one sample at a time in fp64, and the noise.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace veil {

inline constexpr const char* kPass = "pass";
inline constexpr const char* kFail = "FAIL";

// A sample's gradient norm before and after clipping, in one layer or in all of them ("all").
struct VerifyNorm {
  int64_t rank = 0, sample = 0;
  std::string layer;
  double before = 0, after = 0;
  std::optional<bool> counts = {};  // of "all": false for padding
};

// The first difference that is too large.
struct VerifyMismatch {
  std::string what, parameter;
  int64_t rank = 0;
  std::optional<int64_t> sample;
  std::string likely_cause;
};

// One way to compute a step. Differences are relative to the largest value of the reference.
struct VerifyRow {
  std::string model, task, mode, strategy, dtype, checkpointing;
  int64_t world = 1, batch_size = 0, micro_batches = 1;
  // Of a private step.
  std::string pass_plan = "", clip = "";
  std::optional<std::vector<std::string>> rules = {};
  std::optional<double> clip_norm = {};
  std::optional<double> max_grad_diff = {}, max_norm_diff = {}, max_coefficient_diff = {};
  std::optional<double> sum_clipped_norms = {}, expected_sum_clipped_norms = {};
  std::optional<std::vector<VerifyNorm>> norms = {};
  std::vector<std::string> not_private = {};  // which of these must not be published
  double tolerance = 0;
  std::string verdict = "";
  std::optional<VerifyMismatch> failure = {};
  std::vector<std::pair<std::string, double>> phases_ms = {};

  bool is_private() const { return !pass_plan.empty(); }
};

// The noise of one model under one strategy.
struct VerifyNoiseRow {
  std::string model = "", task = "", strategy = "", rng = "";
  std::string batch = "", optimizer = "", storage = "";  // batch: "varying" or "fixed"
  double sigma = 0, clip_norm = 0, expected_batch = 0;
  int64_t world = 1, draws = 0;
  double mean_z = 0, variance_z = 0, kolmogorov = 0, between_shards_z = 0, between_steps_z = 0;
  bool bits_are_the_generators = true;
  double difference_with_samples = 0;
  std::string digest = "";  // of all parameters: the same in every world
  std::vector<std::string> failures = {};
  std::string verdict = "";
};

struct VerifyRecord {
  std::string command = "";
  nlohmann::json config = {}, build = {};
  std::optional<double> tolerance = {};
  std::string verdict = "";
  std::vector<VerifyRow> rows = {};
  std::vector<VerifyNoiseRow> noise = {};
};

nlohmann::ordered_json to_json(const VerifyRecord& record);
// DamagedRecordError if a value has another type.
VerifyRecord verify_record_from_json(const nlohmann::ordered_json& json);

}  // namespace veil
