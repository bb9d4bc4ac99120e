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

bool layer_is(const std::vector<bool>& layers, int64_t layer) {
  return !layers.empty() && layers[static_cast<size_t>(layer) % layers.size()];
}

RopeFrequencies rope_frequencies(const LanguageConfig& config, int64_t layer, int64_t tokens) {
  RopeFrequencies frequencies;
  if (config.rope_theta == 0 || layer_is(config.still, layer)) return frequencies;
  const auto turning =
      static_cast<int64_t>(config.rope_fraction * static_cast<double>(config.head_dim));
  frequencies.count = static_cast<int>(turning / 2);
  const bool local = config.local_rope_theta > 0 && layer_is(config.sliding, layer);
  const double theta = local ? config.local_rope_theta : config.rope_theta;
  const RopeScaling scaling = local ? RopeScaling{} : config.rope_scaling;
  const bool is_long = tokens > scaling.original_positions;
  if (scaling.kind == RopeScaling::Kind::longrope) frequencies.scale = scaling.attention_factor;
  for (int j = 0; j < frequencies.count; ++j) {
    double f = std::pow(theta, -2.0 * j / static_cast<double>(turning));
    if (scaling.kind == RopeScaling::Kind::longrope)
      f /= (is_long ? scaling.long_factor : scaling.short_factor)[static_cast<size_t>(j)];
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
