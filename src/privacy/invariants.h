// What must be true of every step of a private run, looked at while it runs: that what the step
// does is what the plan says and the ledger counts. UserError if one fails; no person's input leads
// there, so it names what was found, and the run stops without another step.
#pragma once

#include <cstdint>
#include <vector>

#include "privacy/clip_method.h"
#include "privacy/ledger.h"

namespace veil::privacy {

// What the executor will do: clip norms, noise and divisor are the mechanism's.
void expect_planned(const PrivateStep& step, const Mechanism& mechanism);

// What the ledger on disk says before step `step` is computed: it is counted, as the mechanism's.
void expect_counted(const LedgerEvent& event, const Mechanism& mechanism, int64_t step);

// How many of the `units` were drawn over all ranks. shuffled: the batch. poisson: no more than the
// maximum, and no number that q draws less often than once in 10^20 steps.
void expect_drawn(const Mechanism& mechanism, int64_t units, int64_t drawn);

// squared [params, samples] and coefficients [layers, samples] of a micro-batch: no sample's
// gradient, as its norm was computed, moves the sum by more than its layer's clip norm, and a
// sample whose norm is not finite does not move it at all.
struct ClippedNorms {
  const double *squared = nullptr, *coefficients = nullptr;
  int64_t params = 0, samples = 0;
  const std::vector<int>& layer_of_param;
  const std::vector<double>& clip_norms;
};
void expect_clipped(const ClippedNorms& norms);
// coefficients of places that no sample of a sum was kept in: what lies there is of earlier ones.
void expect_left_out(const std::vector<double>& coefficients);
// coefficients of all ranks' samples: finite and not below 0.
void expect_weights(const std::vector<double>& coefficients);

// Elements of a unit's part that got noise in its update, and how many it has; and how many updates
// the unit had in this step.
void expect_noised(const std::string& unit, int64_t noised, int64_t elements);
void expect_one_update(const std::string& unit, int64_t updates);

}  // namespace veil::privacy
