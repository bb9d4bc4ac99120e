// A language model's numbers, as its config.json has them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/names.h"
#include "kernels/rope_frequencies.h"

namespace veil {

// What each of them is: models/family.h.
enum class Family { llama, smollm3, qwen2, qwen3, mistral, phi3, olmo2, gemma3, gpt2, roberta };
enum class Task { causal_lm, sequence_classification };
const NameTable<Family>& names(Family);
const NameTable<Task>& names(Task);

// How rotary frequencies are stretched for long texts.
struct RopeScaling {
  enum class Kind { none, linear, llama3, longrope } kind = Kind::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
  // longrope: a divisor for each pair, for sequences up to original_positions and for longer ones;
  // and what the turned values are multiplied by
  std::vector<double> short_factor = {}, long_factor = {};
  double attention_factor = 1;
};

struct LanguageConfig {
  Family family = Family::llama;
  Task task = Task::causal_lm;
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, feed = 0, vocabulary = 0,
          positions = 0;
  double rope_theta = 10000;  // 0: positions are learned, nothing turns
  RopeScaling rope_scaling;
  double rope_fraction = 1;        // of a head, which turns; the rest of it stays
  double local_rope_theta = 0;     // of layers that slide, without scaling; 0: as of the others
  std::vector<bool> still = {};    // by layer: nothing turns; empty: no such layer
  int64_t window = 0;              // how many positions a token sees in layers that slide
  std::vector<bool> sliding = {};  // by layer; empty: no layer slides
  double score_scalar = 0;         // scores are divided by its root; 0: head_dim
  double norm_epsilon = 1e-5;
  bool tied = false;  // the head is the embedding's table
  bool qkv_bias = false;
  int64_t labels = 3;       // of sequence classification
  int64_t padding_id = -1;  // -1: none
  int64_t token_types = 1;  // rows of RoBERTa's table, of which the first is used
  double initial_deviation = 0.02;
  // the file it came from, for export; null if it came from a preset
  nlohmann::ordered_json source;
};

// Whether a layer is among those that `sliding` or `still` names.
bool layer_is(const std::vector<bool>& layers, int64_t layer);

// Of one layer, for sequences of so many tokens: pair j turns by t * value[j].
RopeFrequencies rope_frequencies(const LanguageConfig& config, int64_t layer = 0,
                                 int64_t tokens = 1);

}  // namespace veil
