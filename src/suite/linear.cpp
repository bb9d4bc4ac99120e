#include "suite/linear.h"

namespace veil {

std::vector<PlannedExperiment> linear_suite(const std::vector<std::string>& common) {
  std::vector<PlannedExperiment> plan = {
      {"ddp", "basic DDP", {"--strategy", "ddp"}},
      {"fsdp", "basic FSDP", {"--strategy", "zero3"}},
      {"fsdp_memory", "memory-optimised FSDP", {"--strategy", "zero3", "--cpu-offload"}},
      {"fsdp_performance",
       "performance-optimised FSDP",
       {"--strategy", "zero3", "--forward-prefetch", "1", "--backward-prefetch", "post"}}};
  for (PlannedExperiment& experiment : plan)
    experiment.arguments.insert(experiment.arguments.end(), common.begin(), common.end());
  return plan;
}

}  // namespace veil
