// Optimizers as settings and as per-step numbers. The arithmetic is one fused kernel over a flat
// shard (kernels/update.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/names.h"
#include "kernels/update.h"

namespace veil {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double learning_rate = 0.01;
  double momentum = 0.9;  // sgd_momentum
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0;
};

const NameTable<OptimizerKind>& names(OptimizerKind);
int optimizer_states(OptimizerKind kind);  // tensors of state for each parameter: 0, 1 or 2

// What one step's update reads from device memory. `step` counts from 1; `scale` multiplies the
// summed gradient (1 / expected batch).
UpdateRule update_rule(const OptimizerOptions& options, uint64_t rounding_seed);
UpdateKnobs knobs_for_step(const OptimizerOptions& options, double learning_rate, int64_t step,
                           double scale);

}  // namespace veil
