// Ways to clip on a diffusion transformer, by what its memory goes to.
#pragma once

#include "suite/suite.h"

namespace veil {

// Each combination is an experiment. An empty list: what image_size and so on say, once.
struct DitGrid {
  std::vector<Mode> modes = {
      Mode::no_dp,    Mode::ghost, Mode::flash, Mode::bookkeeping, Mode::flash_clip_bookkeeping,
      Mode::automatic};
  std::vector<std::string> models = {};
  std::vector<int64_t> image_sizes = {}, patch_sizes = {}, batch_sizes = {}, accumulations = {};
  std::vector<AttentionKind> attentions = {};
};

// Named by mode (vanilla, ghost, flash_clip, ...), with what else differs behind it, as in
// ghost_img128_p4. UserError for a value that is given twice.
std::vector<Experiment> dit_experiments(const DitGrid& grid,
                                        const std::vector<std::string>& common);

// "vanilla", "flash_clip" or the mode's own name.
std::string dit_mode_title(Mode mode);

// Memory by component, over a step, and against time.
std::vector<Plot> dit_plots(const std::vector<Record>& records);

// Set-ups compared at the largest images, growth over tokens, flash against math attention.
Verdict dit_verdict(const RecordFolder& folder);
// Time and memory by tokens; none of a single image size.
std::vector<Plot> dit_growth_plots(const std::vector<Record>& records);
// Growth over tokens, and flash against math attention, of records that can tell.
std::vector<PageTable> dit_tables(const std::vector<Record>& records);

}  // namespace veil
