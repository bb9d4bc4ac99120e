#include "optim/optimizer.h"

#include <cmath>

namespace veil {

const NameTable<OptimizerKind>& names(OptimizerKind) {
  static const NameTable<OptimizerKind> table = {
      {OptimizerKind::sgd, "sgd"},
      {OptimizerKind::sgd_momentum, "sgd-momentum"},
      {OptimizerKind::adamw, "adamw", {"adamw_torch", "adamw_torch_fused"}}};
  return table;
}

int optimizer_states(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::sgd_momentum:
      return 1;
    case OptimizerKind::adamw:
      return 2;
  }
  return 0;
}

UpdateRule update_rule(const OptimizerOptions& options, uint64_t rounding_seed) {
  UpdateRule rule;
  rule.kind = options.kind;
  rule.momentum = options.momentum;
  rule.beta1 = options.beta1;
  rule.beta2 = options.beta2;
  rule.epsilon = options.epsilon;
  rule.weight_decay = options.weight_decay;
  rule.rounding_seed = rounding_seed;
  return rule;
}

UpdateKnobs knobs_for_step(const OptimizerOptions& options, double learning_rate, int64_t step,
                           double scale) {
  const auto t = static_cast<double>(step);
  UpdateKnobs knobs;
  knobs.learning_rate = learning_rate;
  knobs.scale = scale;
  knobs.bias_correction1 = 1 - std::pow(options.beta1, t);
  knobs.bias_correction2 = 1 - std::pow(options.beta2, t);
  knobs.step = t;
  return knobs;
}

}  // namespace veil
