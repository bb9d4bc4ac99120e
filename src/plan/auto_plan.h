// Which rules and pass plan clip a model fastest within a memory budget, and what each would cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/roofline.h"
#include "step/schedule.h"

namespace veil {

// What one parameter's norms cost by each rule.
struct RulePrice {
  ParamId param = 0;
  privacy::NormRule rule = privacy::NormRule::ghost;  // the one that is taken
  double milliseconds[3] = {};                        // by NormRule
  std::string reason;
};

struct PlanPrice {
  privacy::ClipPlan plan;
  double extra_ms = 0;     // beyond the step that is not private, by the roofline
  int64_t peak_bytes = 0;  // of the whole step, by the estimator
  bool fits = true;
  std::string reason;
  std::vector<RulePrice> rules;  // none for keep, which norms what it keeps
};

struct PlanWish {
  std::optional<privacy::NormRule> rule = {};
  std::optional<privacy::PassPlan> pass = {};
  std::optional<int64_t> tile = {};
  bool by_layer = false;  // ClipFunction::per_layer
  std::optional<int64_t> budget_bytes = {};
};

// Every plan that the wish allows; the first one is to be taken: the fastest that fits, or the smallest where none does.
std::vector<PlanPrice> price_plans(const ModelShape& shape, const StepOptions& step, const PlanWish& wish,
                                   const Roofline& roofline);

}  // namespace veil
