// Clipping modes by sequence lengths: the grid of seeds 000 and 001.
#pragma once

#include "suite/clip_choice.h"
#include "suite/sweep.h"

namespace veil {

struct ModeGrid {
  std::vector<Mode> modes = {Mode::no_dp, Mode::ghost_fsdp, Mode::flash_fsdp};
  std::vector<int64_t> seq_lengths = {1024, 2048, 4096};
};

// Names like ghost_fsdp_seq2048; modes of one length run side by side. `common` are arguments of `veil profile` that all share. UserError for a value that stands twice.
std::vector<PlannedExperiment> mode_suite(const ModeGrid& grid, const std::vector<std::string>& common);

}  // namespace veil
