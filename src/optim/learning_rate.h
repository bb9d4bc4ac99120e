// The learning rate over a run, as a value: warm-up, then constant or falling.
#pragma once

#include <cstdint>

#include "base/names.h"

namespace veil {

enum class LearningRateKind { constant, linear, cosine };
const NameTable<LearningRateKind>& names(LearningRateKind);

struct LearningRateSchedule {
  LearningRateKind kind = LearningRateKind::constant;
  double base = 0.01;
  int64_t warmup_steps = 0;  // within total_steps
  int64_t total_steps = 1;
  double minimum_ratio = 0;  // of base, where a falling rate ends
};

// UserError in one line for a schedule that makes no sense.
void check_schedule(const LearningRateSchedule& schedule);

// `step` counts from 1, as optimizers do. Warm-up rises in equal parts, base * step / (warmup_steps
// + 1), so the step after it is the first at base. From there a falling rate takes total_steps -
// warmup_steps steps to minimum_ratio * base and stays there: step total_steps is the last one
// above it.
double learning_rate_at(const LearningRateSchedule& schedule, int64_t step);

}  // namespace veil
