// Which rules and passes clip a model fastest within a memory budget, and what each would cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "estimate/time_estimate.h"

namespace veil {

// What one parameter's norms cost by each rule.
struct RulePrice {
  ParamId param = 0;
  privacy::NormRule rule = privacy::NormRule::ghost;  // the one that is taken
  double milliseconds[3] = {};                        // by NormRule
  std::string reason;
};

struct MethodPrice {
  privacy::ClipMethod method;
  TimeEstimate time;       // of the whole step
  int64_t peak_bytes = 0;  // likewise, by the estimator
  bool fits = true;
  std::string reason;
  std::vector<RulePrice> rules;  // none for keep, which norms what it keeps
};

struct MethodWish {
  std::optional<privacy::NormRule> rule = {};
  std::optional<privacy::PassKind> pass = {};
  std::optional<int64_t> tile = {};
  // ClipMethod's; by default what is fastest within a budget, and 1 without one
  std::optional<int> combine_every = {};
  bool by_layer = false;  // ClipFunction::per_layer
  std::optional<int64_t> budget_bytes = {};
};

// Every method that the wish allows; the first one is to be taken: the fastest that fits, or the
// smallest if none does.
std::vector<MethodPrice> price_methods(const ModelShape& shape, const StepOptions& step,
                                       const MethodWish& wish, const StepPrices& prices);

}  // namespace veil
