// Low-rank adapters (Hu et al., "LoRA", 2021): the weight of a chosen projection is W + s B A, and
// of the model's parameters A and B alone are trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace veil {

struct LoraSettings {
  int64_t rank = 16;
  double alpha = 32;
  bool rslora = false;  // s = alpha / sqrt(rank) instead of alpha / rank
  // Which projections: "all", "attention", ends of their names ("q_proj" is
  // "model.layers.3.self_attn.q_proj"), or patterns with '*'.
  std::vector<std::string> targets = {"all"};

  double scale() const;
};

// Whether one of the targets, or any of them, means a projection, named without ".weight".
bool is_target(const std::string& target, const std::string& module);
bool adapts(const LoraSettings& lora, const std::string& module);

inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
bool is_adapter(const std::string& parameter);

}  // namespace veil
