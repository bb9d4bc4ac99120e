// What `veil verify` checks, where, and how closely.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "run/config.h"

namespace veil {

struct VerifyOptions {
  // The model ("": verify_models), how its step is spread, device, seed. `compute` is the type that
  // is verified; batch_size and accumulation are a rank's. Of its privacy: the clip function, C (0:
  // the median of the samples' norms, so that some are clipped and some are not), and rule, pass
  // plan and tile in addition to each mode.
  RunConfig config;
  std::vector<Mode> modes;
  std::vector<Strategy> strategies;
  std::vector<NoiseGenerator> generators = {NoiseGenerator::secure};
  bool norms = false;   // every norm, by rank, sample and layer, in the rows
  bool phases = false;  // time by phase in the rows
};

struct VerifyPlace {
  RankInfo info;
  std::function<void(const std::string&, int64_t done, int64_t total)> on_progress;  // rows; rank 0
};

// Both ways that kept gradients take between ranks are verified, whatever they weigh: one under zero3,
// the other under zero2.
inline Exchange verified_exchange(const StepConfig& step) {
  if (step.exchange != Exchange::automatic) return step.exchange;
  return step.strategy == Strategy::zero3 ? Exchange::kept : Exchange::sums;
}

// How far a row may be from the reference, relative to the largest value.
//   fp64 1e-10, fp32 1e-5: some hundred roundings of 1.1e-16 and 6e-8 that partly cancel. bf16
//   0.05: hidden states and their gradients are rounded to 8 bits (a relative 2^-9) some ten times
//   per layer. That is the models' own arithmetic, the same without privacy; norms, coefficients
//   and sums are fp32. So in bf16 this finds wrong formulas, which are off by tens of percent, not
//   small slips: those are for fp32.
inline double verify_tolerance(DType compute) {
  switch (compute) {
    case at::kDouble:
      return 1e-10;
    case at::kFloat:
      return 1e-5;
    default:
      return 0.05;
  }
}

}  // namespace veil
