#include "cli/clip_options.h"

namespace veil {

void add_clip_options(Options& options, ClipChoice& choice) {
  options.add(
      "mode", choice.mode,
      {.help = "how per-sample norms are found and used; no_dp is plain training, the _fsdp modes also set zero3"});
  add_clip_part_options(options, choice);
}

void add_clip_part_options(Options& options, ClipChoice& choice) {
  options.add("rule", choice.rule,
              {.help = "of a private step: how one parameter's norms are found; as the mode says if not given"});
  options.add(
      "pass-plan", choice.pass,
      {.aliases = {"pass"},
       .help = "of a private step: what is kept until the coefficients are known; as the mode says if not given"});
  options.add("tile-size", choice.tile,
              {.help = "side of the tiles in which norms are computed", .minimum = 1, .maximum = 1 << 20});
  options.add("memory-budget", choice.memory_budget_gib,
              {.help = "memory that --mode auto may plan with", .minimum = 0, .value = "GIB"});
}

}  // namespace veil
