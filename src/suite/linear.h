// Seed 003's four set-ups: DDP or FSDP, for memory or for speed.
#pragma once

#include "suite/sweep.h"

namespace veil {

// `common` are arguments of `veil profile` that all four share.
std::vector<PlannedExperiment> linear_suite(const std::vector<std::string>& common);

}  // namespace veil
