// DDP or FSDP, for memory or for speed: the four set-ups of PyTorch's FSDP tutorials, on a stack of
// linear layers.
#include <array>

#include "suite/suite.h"

namespace veil {

namespace {

// What each set-up does, in a line.
std::vector<PageTable> lessons(const std::vector<Record>& records) {
  static const std::vector<std::array<const char*, 3>> known = {
      {"ddp", "every rank holds all parameters, gradients and optimizer state",
       "gradients are summed over the ranks; simplest and fastest while the model fits"},
      {"fsdp", "each rank holds its share; a layer is gathered just before it is used",
       "memory falls with the number of ranks; every layer is gathered twice per step"},
      {"fsdp_memory", "as basic FSDP, with the shares in the host's memory",
       "the least device memory; a step waits for copies over PCIe. On a CPU nothing moves"},
      {"fsdp_performance", "as basic FSDP, gathering the next layer while this one computes",
       "hides communication; holds one more gathered layer"}};
  Table table({"set-up", "what it does", "what to expect"});
  for (const auto& [experiment, does, expect] : known) {
    for (const Record& record : records) {
      if (record.experiment == experiment) table.row({record.label, does, expect});
    }
  }
  if (table.rows() == 0) return {};
  return {{"What the set-ups do", "docs/sharding.md explains when to take which", table}};
}

}  // namespace

Suite linear_suite() {
  Suite suite{
      .name = "linear",
      .help =
          "DDP or FSDP on a stack of linear layers: basic DDP, basic FSDP, for memory, for speed",
      .prepare = prefer_real_ranks,
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
  suite.page.more_tables = lessons;
  suite.refused = {
      {{"strategy", "cpu-offload", "forward-prefetch", "backward-prefetch"},
       "the suite's four set-ups decide it themselves; `veil profile` measures one of your own"}};
  return suite;
}

}  // namespace veil
