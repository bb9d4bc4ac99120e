#include "suite/clip_choice.h"

#include "base/error.h"

namespace veil {

using privacy::NormRule;
using privacy::PassPlan;

const NameTable<Mode>& names(Mode) {
  static const NameTable<Mode> table = {{Mode::no_dp, "no_dp", {"vanilla", "none"}},
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

privacy::ClipPlan clip_plan(const ClipChoice& choice, const ModelShape& shape, bool by_layer) {
  VEIL_CHECK(choice.mode != Mode::no_dp, "a clip plan of a step that is not private");
  const bool flash =
      choice.mode == Mode::flash || choice.mode == Mode::flash_fsdp || choice.mode == Mode::flash_clip_bookkeeping;
  const bool book = choice.mode == Mode::bookkeeping || choice.mode == Mode::flash_clip_bookkeeping;
  const NormRule rule = choice.rule.value_or(flash                              ? NormRule::flash
                                             : choice.mode == Mode::materialize ? NormRule::materialize
                                                                                : NormRule::ghost);
  const PassPlan pass = choice.pass.value_or(choice.mode == Mode::materialize ? PassPlan::keep
                                             : book                           ? PassPlan::book
                                                                              : PassPlan::two_pass);
  if (pass == PassPlan::per_layer && !by_layer)
    user_error("--pass-plan per-layer: it goes with --clip per-layer, for other coefficients need all layers' norms");
  privacy::ClipPlan plan = privacy::uniform_plan(shape, pass, rule);
  if (choice.tile) plan.tile = *choice.tile;
  plan.layers = by_layer;
  return plan;
}

}  // namespace veil
