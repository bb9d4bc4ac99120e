// Seed 002's comparison: strategies by batch size by gradient accumulation, on a language model.
#pragma once

#include "shard/options.h"
#include "suite/sweep.h"

namespace veil {

// Each combination is an experiment.
struct ZeroGrid {
  std::vector<Strategy> strategies = {Strategy::zero2, Strategy::zero3};
  std::vector<int64_t> batch_sizes = {2, 4, 8, 16};  // samples a rank and micro-batch
  std::vector<int64_t> accumulations = {1, 2, 4};    // micro-batches in a logical batch
};

// Names like zero2_bs4_ga2. `common` are arguments of `veil profile` that all share. UserError for a value that stands twice.
std::vector<PlannedExperiment> zero_suite(const ZeroGrid& grid, const std::vector<std::string>& common);

}  // namespace veil
