#include "models/config.h"

#include <cmath>
#include <numbers>

namespace veil {

const NameTable<Task>& names(Task) {
  static const NameTable<Task> table = {
      {Task::causal_lm, "causal-lm", {"lm", "causal"}},
      {Task::sequence_classification, "sequence-classification", {"classification", "seqcls"}}};
  return table;
}

RopeFrequencies rope_frequencies(const LanguageConfig& config) {
  RopeFrequencies frequencies;
  if (config.rope_theta == 0) return frequencies;
  frequencies.count = static_cast<int>(config.head_dim / 2);
  const RopeScaling& scaling = config.rope_scaling;
  for (int j = 0; j < frequencies.count; ++j) {
    double f = std::pow(config.rope_theta, -2.0 * j / static_cast<double>(config.head_dim));
    if (scaling.kind == RopeScaling::Kind::linear) f /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::llama3) {
      // Long waves are stretched, short ones left alone, those between are mixed.
      const double turns =
          static_cast<double>(scaling.original_positions) * f / (2 * std::numbers::pi);
      const double smooth =
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      if (turns < scaling.low_freq_factor) {
        f /= scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        f = (1 - smooth) * f / scaling.factor + smooth * f;
      }
    }
    frequencies.value[j] = f;
  }
  return frequencies;
}

}  // namespace veil
