// `veil verify`: every way of computing a private step, held against what DP-SGD is: one sample at a time in fp64, clipped and summed by hand.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "suite/clip_choice.h"
#include "suite/experiment.h"

namespace veil {

struct VerifyOptions {
  // The model ("": verify_models), how its step is spread, device, seed. `compute` is the type that is verified; batch_size and accumulation are a rank's.
  ExperimentOptions experiment;
  std::vector<Mode> modes;
  std::vector<Strategy> strategies;
  ClipChoice parts;  // rule, pass plan and tile beside each mode; its own mode says nothing
  privacy::ClipFunction clip = privacy::ClipFunction::abadi;
  double clip_norm = 0;  // C; 0: the median of the samples' norms, so that some are clipped and some are not
  std::vector<NoiseGenerator> generators = {NoiseGenerator::secure};
  bool norms = false;   // every norm, by rank, sample and layer, in the rows
  bool phases = false;  // time by phase in the rows
};

// What is verified where no model is named: the smallest of every family, causal and as classifiers.
struct VerifyModel {
  std::string name;
  std::optional<Task> task;
};
std::vector<VerifyModel> verify_models(const VerifyOptions& options);

// How far a row may lie from the reference, relative to the largest value.
//   fp64 1e-10, fp32 1e-5: some hundred roundings of 1.1e-16 and 6e-8 that partly cancel.
//   bf16 0.05: hidden states and their gradients are rounded to 8 bits (a relative 2^-9) some ten times a layer. That is the models' own arithmetic, the same without
//   privacy; norms, coefficients and sums are fp32. So in bf16 this finds wrong formulas, which are off by tens of percent, not small slips: those are for fp32.
double verify_tolerance(DType compute);

struct VerifyPlace {
  RankInfo info;
  std::function<void(const std::string&, int64_t done, int64_t total)> on_progress;  // rows; rank 0
};

// {"rows": [...], "noise": [...]} of the world that this process belongs to; complete on rank 0. Every rank must call it. Norms and coefficients in it are not private.
nlohmann::ordered_json run_verify(const VerifyOptions& options, const VerifyPlace& place);

// Rows of several worlds, put together: noise must have the same bits in all of them. Appends what differs to the noise rows' failures; false where a row has failed.
bool judge_verify(nlohmann::ordered_json& found);

}  // namespace veil
