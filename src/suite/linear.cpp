// DDP or FSDP, for memory or for speed: the four set-ups of PyTorch's FSDP tutorials, on a stack of
// linear layers.
#include "suite/suite.h"

namespace veil {

Suite linear_suite() {
  Suite suite{
      .name = "linear",
      .help =
          "DDP or FSDP on a stack of linear layers: basic DDP, basic FSDP, for memory, for speed",
      .experiments = [](const std::vector<std::string>& common) {
        return with_common(
            {{"ddp", "basic DDP", {"--strategy", "ddp"}},
             {"fsdp", "basic FSDP", {"--strategy", "zero3"}},
             {"fsdp_memory", "memory-optimised FSDP", {"--strategy", "zero3", "--cpu-offload"}},
             {"fsdp_performance",
              "performance-optimised FSDP",
              {"--strategy", "zero3", "--forward-prefetch", "1", "--backward-prefetch", "post"}}},
            common, "a set-up");
      }};
  suite.page.question = "DDP or FSDP, and with which options, for my memory and my time?";
  // Single profiles besides the four leave the question as it is.
  suite.page.holds = [](const std::vector<Record>& records) {
    return records.front().suite == "linear";
  };
  suite.refused = {
      {{"strategy", "cpu-offload", "forward-prefetch", "backward-prefetch"},
       "the suite's four set-ups decide it themselves; `veil profile` measures one of your own"}};
  return suite;
}

}  // namespace veil
