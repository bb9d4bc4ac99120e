#include "run/clip_choice.h"

#include "base/error.h"
#include "base/units.h"

namespace veil {

using privacy::NormRule;
using privacy::PassKind;

const NameTable<Mode>& names(Mode) {
  static const NameTable<Mode> table = {
      {Mode::no_dp, "no_dp", {"vanilla", "none"}},
      {Mode::automatic, "auto"},
      {Mode::ghost, "ghost", {"ghost_clip"}},
      {Mode::ghost_fsdp, "ghost_fsdp"},
      {Mode::flash, "flash", {"flash_clip"}},
      {Mode::flash_fsdp, "flash_fsdp"},
      {Mode::bookkeeping, "bookkeeping"},
      {Mode::flash_clip_bookkeeping, "flash_clip_bookkeeping", {"flash_bookkeeping"}},
      {Mode::materialize, "materialize"}};
  return table;
}

bool sets_zero3(Mode mode) {
  return mode == Mode::ghost_fsdp || mode == Mode::flash_fsdp;
}

MethodWish method_wish(const ClipChoice& choice, bool by_layer) {
  VEIL_CHECK(choice.mode != Mode::no_dp, "a clip plan of a step that is not private");
  MethodWish wish;
  wish.by_layer = by_layer;
  wish.tile = choice.tile;
  wish.combine_every = choice.combine_every;
  if (choice.memory_budget_gib)
    wish.budget_bytes = static_cast<int64_t>(*choice.memory_budget_gib * (1 << 30));
  switch (choice.mode) {
    case Mode::ghost:
    case Mode::ghost_fsdp:
      wish.rule = NormRule::ghost;
      wish.pass = PassKind::two_pass;
      break;
    case Mode::flash:
    case Mode::flash_fsdp:
      wish.rule = NormRule::flash;
      wish.pass = PassKind::two_pass;
      break;
    case Mode::bookkeeping:
      wish.rule = NormRule::ghost;
      wish.pass = PassKind::book;
      break;
    case Mode::flash_clip_bookkeeping:
      wish.rule = NormRule::flash;
      wish.pass = PassKind::book;
      break;
    case Mode::materialize:
      wish.rule = NormRule::materialize;
      wish.pass = PassKind::keep;
      break;
    case Mode::automatic:
    case Mode::no_dp:
      break;
  }
  if (choice.rule) wish.rule = choice.rule;
  if (choice.pass) wish.pass = choice.pass;
  if (choice.combine_every.value_or(1) > 1 && wish.pass && wish.pass != PassKind::keep)
    field_error("combine_every",
                "{}: the pass plan {} keeps no gradients; allowed is 1, or `pass_plan` keep",
                *choice.combine_every, name_of(*wish.pass));
  return wish;
}

privacy::ClipMethod clip_method(const ClipChoice& choice, const ModelShape& shape,
                                const StepOptions& step, bool by_layer,
                                const std::optional<StepPrices>& prices) {
  const MethodWish wish = method_wish(choice, by_layer);
  const MethodPrice taken =
      price_methods(shape, step, wish,
                    prices ? *prices : StepPrices{assumed_prices(step.on_gpu, step.compute)})
          .front();
  if (!taken.fits) {
    field_error(
        "memory_budget",
        "{}: the smallest method, {}, needs {}; allow more, or lower `batch_size` or `seq_length`",
        *choice.memory_budget_gib, name_of(taken.method.pass), format_bytes(taken.peak_bytes));
  }
  return taken.method;
}

}  // namespace veil
