// The options that say how clipping is computed, defined once for every command that runs or plans a private step.
#pragma once

#include "cli/options.h"
#include "suite/clip_choice.h"

namespace veil {

void add_clip_options(Options& options, ClipChoice& choice);
// The same without --mode, for a command that takes several.
void add_clip_part_options(Options& options, ClipChoice& choice);

}  // namespace veil
