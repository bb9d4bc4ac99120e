// Seed 004's comparison: ways to clip, on a diffusion transformer, by what its memory goes to.
#pragma once

#include "nn/attention.h"
#include "suite/clip_choice.h"
#include "suite/sweep.h"

namespace veil {

// Each combination is an experiment. An empty list: what --image-size and so on say, once.
struct DitGrid {
  std::vector<Mode> modes = {Mode::no_dp,    Mode::ghost, Mode::flash, Mode::bookkeeping, Mode::flash_clip_bookkeeping,
                             Mode::automatic};
  std::vector<std::string> models = {};
  std::vector<int64_t> image_sizes = {}, patch_sizes = {}, batch_sizes = {}, accumulations = {};
  std::vector<AttentionKind> attentions = {};
};

// Seed 004's names: vanilla, ghost, flash_clip, ...; with what else differs behind them, as in ghost_img128_p4. `common` are arguments of `veil profile` that all share. UserError for a value that stands twice.
std::vector<PlannedExperiment> dit_suite(const DitGrid& grid, const std::vector<std::string>& common);

}  // namespace veil
