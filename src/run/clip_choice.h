// How clipping is computed in a private step: a mode by its name, and parts that may be set in
// addition. This changes time and memory, never the result.
#pragma once

#include <optional>

#include "estimate/method_prices.h"
#include "privacy/clip_method.h"

namespace veil {

// Norm rule and pass by one name. no_dp: nothing is clipped per sample. The _fsdp modes also set
// zero3.
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
  std::optional<privacy::PassKind> pass = {};
  std::optional<int64_t> tile = {};
  std::optional<int> combine_every = {};
  std::optional<double> memory_budget_gib = {};

  bool sets_a_part() const { return rule || pass || tile || combine_every || memory_budget_gib; }
};

// What the mode and its parts leave to be chosen by price. UserError if the parts contradict each
// other. `by_layer`: ClipFunction::per_layer.
MethodWish method_wish(const ClipChoice& choice, bool by_layer);
// The method of a private step: what is set, and the rest by predicted time. Without prices, by
// assumed ones, which are the same on every machine.
privacy::ClipMethod clip_method(const ClipChoice& choice, const ModelShape& shape,
                                const StepOptions& step, bool by_layer,
                                const std::optional<StepPrices>& prices = {});

}  // namespace veil
