#include "suite/repeats.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace veil {

using Json = nlohmann::ordered_json;

namespace {

// The mean of every number below; what is no number in all of them stays as the first has it.
Json mean_of(const std::vector<const Json*>& values) {
  Json result = *values.front();
  if (result.is_object()) {
    for (auto& [key, value] : result.items()) {
      std::vector<const Json*> below;
      for (const Json* one : values) {
        if (one->is_object() && one->contains(key)) below.push_back(&(*one)[key]);
      }
      value = mean_of(below);
    }
    return result;
  }
  double sum = 0;
  for (const Json* one : values) {
    if (!one->is_number()) return result;
    sum += one->get<double>();
  }
  return sum / static_cast<double>(values.size());
}

}  // namespace

Json merged_repeats(const std::vector<Json>& records) {
  VEIL_CHECK(!records.empty(), "no repeat to merge");
  for (const char* const outcome : {"error", "oom"}) {
    for (const Json& record : records) {
      if (record.value("outcome", "error") == outcome) return record;
    }
  }
  Json merged = records.front();
  Json times = Json::array(), repeats = Json::array();
  double sum = 0, squares = 0;
  for (const Json& record : records) {
    for (const Json& time : record.at("times_ms")) {
      times.push_back(time);
      sum += time.get<double>();
    }
    repeats.push_back({{"avg_time_ms", record.at("avg_time_ms")}, {"std_time_ms", record.at("std_time_ms")}});
    if (record.value("peak_memory_bytes", int64_t{0}) > merged.value("peak_memory_bytes", int64_t{0})) {
      for (const char* const key : {"peak_memory_bytes", "peak_memory_mb", "peak_memory_gb", "breakdown"}) {
        if (record.contains(key)) merged[key] = record[key];
      }
    }
  }
  const auto count = static_cast<double>(times.size());
  const double mean = count > 0 ? sum / count : 0;
  for (const Json& time : times) squares += std::pow(time.get<double>() - mean, 2);
  for (const char* const key : {"phases", "communication", "phase_sum_ms", "modelled_step_ms", "tokens_per_second",
                                "mfu", "tflops_per_second_a_rank", "gpu_state", "cpu_during", "end_to_end_seconds"}) {
    if (!merged.contains(key)) continue;
    std::vector<const Json*> values;
    for (const Json& record : records) {
      if (record.contains(key)) values.push_back(&record[key]);
    }
    merged[key] = mean_of(values);
  }
  merged["times_ms"] = times;
  merged["avg_time_ms"] = mean;
  merged["std_time_ms"] = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  merged["repeats"] = repeats;
  return merged;
}

}  // namespace veil
