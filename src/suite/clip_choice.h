// How a private step is asked for: a mode by its name, and the parts that a person may set beside it. It changes time and memory, never the result.
#pragma once

#include <optional>

#include "plan/auto_plan.h"
#include "privacy/clip_plan.h"

namespace veil {

// Rule and pass plan by one name. no_dp: nothing is clipped per sample. The _fsdp modes also set zero3.
enum class Mode {
  no_dp,
  automatic,
  ghost,
  ghost_fsdp,
  flash,
  flash_fsdp,
  bookkeeping,
  flash_clip_bookkeeping,
  materialize
};
const NameTable<Mode>& names(Mode);
bool sets_zero3(Mode mode);

struct ClipChoice {
  Mode mode = Mode::no_dp;
  std::optional<privacy::NormRule> rule = {};
  std::optional<privacy::PassPlan> pass = {};
  std::optional<int64_t> tile = {};
  std::optional<double> memory_budget_gib = {};

  bool sets_a_part() const { return rule || pass || tile || memory_budget_gib; }
};

// What the mode's name and the parts beside it leave open. UserError where the parts do not go together. `by_layer`: ClipFunction::per_layer.
PlanWish plan_wish(const ClipChoice& choice, bool by_layer);
// The plan of a step that is private: what was asked for, and the rest by price. Without a roofline an assumed one.
privacy::ClipPlan clip_plan(const ClipChoice& choice, const ModelShape& shape, const StepOptions& step, bool by_layer,
                            const std::optional<Roofline>& roofline = {});

}  // namespace veil
