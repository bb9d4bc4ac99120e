#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace veil {

const NameTable<LearningRateKind>& names(LearningRateKind) {
  static const NameTable<LearningRateKind> table = {
      {LearningRateKind::constant, "constant", {"constant_with_warmup"}},
      {LearningRateKind::linear, "linear"},
      {LearningRateKind::cosine, "cosine"}};
  return table;
}

void check_schedule(const LearningRateSchedule& schedule) {
  if (!(schedule.base >= 0) || !std::isfinite(schedule.base)) {
    field_error("learning_rate", "must be 0 or more, got {}", schedule.base);
  }
  if (schedule.total_steps < 1)
    field_error("steps", "must be at least 1, got {}", schedule.total_steps);
  if (schedule.warmup_steps < 0 || schedule.warmup_steps > schedule.total_steps) {
    field_error("warmup_steps", "must be from 0 to the run's {1}, got {0}", schedule.warmup_steps,
                schedule.total_steps);
  }
  if (!(schedule.minimum_ratio >= 0 && schedule.minimum_ratio <= 1)) {
    field_error("minimum_lr", "must be from 0 to 1 times the learning rate, got {}",
                schedule.minimum_ratio);
  }
}

double learning_rate_at(const LearningRateSchedule& schedule, int64_t step) {
  VEIL_CHECK(step >= 1, "step {}: they count from 1", step);
  const auto [kind, base, warmup, total, minimum] = schedule;
  if (step <= warmup) return base * static_cast<double>(step) / static_cast<double>(warmup + 1);
  if (kind == LearningRateKind::constant) return base;
  // 0 at the first step after warm-up, 1 once the run is over; the maximum is for a run that is all
  // warm-up.
  const double fallen =
      std::min(1.0, static_cast<double>(step - 1 - warmup) /
                        static_cast<double>(std::max<int64_t>(1, total - warmup)));
  const double left = kind == LearningRateKind::linear
                          ? 1 - fallen
                          : 0.5 * (1 + std::cos(std::numbers::pi * fallen));
  return base * (minimum + (1 - minimum) * left);
}

}  // namespace veil
