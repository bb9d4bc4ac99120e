// The default accountant: the privacy loss of the whole run, numerically, between two bounds.
//
// The loss of one step is rounded to a grid once upwards and once downwards (privacy_loss.h), each
// composed by Fourier transforms. So that tiny deltas keep their digits, the composition is of the
// exponentially tilted loss: weights exp(tilt L) move the mass to where epsilon lies (the saddle
// point), and delta is computed relative to itself instead of to 1. What a finite window and
// rounding add is bounded and counted in the upper and against the lower bound.
#pragma once

#include "privacy/composition.h"

namespace veil::privacy {

// Epsilon's grid is chosen for about this error, relative above epsilon 1; the answer says what was
// reached.
inline constexpr double kPldAccuracy = 2e-5;

// The range that the grids resolve. Outside it the answer is the smaller of two simple bounds from
// above, the unsampled Gaussian's and RDP's, and nothing is said from below. Inside it the answer is
// never above them either.
inline constexpr double kPldLeastSigma = 0.02, kPldMostSigma = 1e6, kPldLeastRate = 1e-12,
                        kPldLeastDelta = 1e-100;

Bounds pld_epsilon_bounds(const std::vector<Phase>& phases, double delta,
                          double accuracy = kPldAccuracy);
Bounds pld_delta_bounds(const std::vector<Phase>& phases, double epsilon,
                        double accuracy = kPldAccuracy);

// The upper bound, and how far the lower one lies below it.
Spent pld_epsilon(const std::vector<Phase>& phases, double delta);

}  // namespace veil::privacy
