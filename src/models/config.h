// A language model's numbers, as its config.json has them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/names.h"
#include "kernels/rope_frequencies.h"

namespace veil {

// What each of them is: models/family.h.
enum class Family { llama, qwen2, gpt2 };
enum class Task { causal_lm, sequence_classification };
const NameTable<Family>& names(Family);
const NameTable<Task>& names(Task);

// How rotary frequencies are stretched for long texts.
struct RopeScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};

struct LanguageConfig {
  Family family = Family::llama;
  Task task = Task::causal_lm;
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, feed = 0, vocabulary = 0,
          positions = 0;
  double rope_theta = 10000;  // 0: positions are learned, nothing turns
  RopeScaling rope_scaling;
  double norm_epsilon = 1e-5;
  bool tied = false;  // the head is the embedding's table
  bool qkv_bias = false;
  int64_t labels = 3;       // of sequence classification
  int64_t padding_id = -1;  // -1: none
  double initial_deviation = 0.02;
  // the file it came from, for export; null where it came from a preset
  nlohmann::ordered_json source;
};

// Pair j turns by t * value[j].
RopeFrequencies rope_frequencies(const LanguageConfig& config);

}  // namespace veil
