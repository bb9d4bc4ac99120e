#include "cli/clip_options.h"

namespace veil {

void add_clip_options(Options& options, ClipChoice& choice) {
  options.add("mode", choice.mode,
              {.aliases = {"experiment"},
               .help = fmt::format("how norms are found and what is kept: {}; the _fsdp ones also set zero3",
                                   join(all_names<Mode>(), ", ")),
               .value = "MODE"});
  add_clip_part_options(options, choice);
}

void add_clip_part_options(Options& options, ClipChoice& choice) {
  options.add("rule", choice.rule, {.help = "how one parameter's norms are found; as the mode says if not given"});
  options.add(
      "pass-plan", choice.pass,
      {.aliases = {"pass"}, .help = "what is kept until the coefficients are known; as the mode says if not given"});
  options.add("tile-size", choice.tile,
              {.help = "side of the tiles in which norms are computed; 1024 on a GPU, 256 on a CPU unless given",
               .minimum = 1,
               .maximum = 1 << 20});
  options.add("memory-budget", choice.memory_budget_gib,
              {.help = "memory that mode auto may plan with", .minimum = 0, .value = "GIB"});
}

}  // namespace veil
