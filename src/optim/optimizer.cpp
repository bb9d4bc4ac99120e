#include "optim/optimizer.h"

#include <cmath>

namespace veil {

const char* optimizer_name(OptimizerKind kind) {
  constexpr const char* kNames[] = {"sgd", "sgd_momentum", "adamw"};
  return kNames[static_cast<int>(kind)];
}

int optimizer_states(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd: return 0;
    case OptimizerKind::sgd_momentum: return 1;
    case OptimizerKind::adamw: return 2;
  }
  return 0;
}

UpdateKnobs knobs_for_step(const OptimizerOptions& options, double learning_rate, int64_t step, double scale) {
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
