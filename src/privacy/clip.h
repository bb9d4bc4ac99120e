// Clip functions: how far one sample can move the sum of clipped gradients, and how C is adapted.
// The coefficients themselves are made by kernels/coefficients.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/names.h"
#include "kernels/clip_coefficient.h"
#include "kernels/noise_values.h"

namespace veil {

const NameTable<ClipFunction>& names(ClipFunction);

}  // namespace veil

namespace veil::privacy {

using veil::ClipFunction;

// How far one sample moves the layers' clipped sums together: sqrt(sum C_l^2).
double layer_sensitivity(const std::vector<double>& clip_norms);
// Equal C_l with the sensitivity C.
std::vector<double> equal_layer_norms(double clip_norm, int64_t layers);

// Adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy, "Differentially Private Learning with
// Adaptive Clipping", 2021): each logical batch releases one noisy count of the samples below C,
// and C moves towards a quantile of the norms.
struct AdaptiveClip {
  double quantile = 0.5;
  double rate = 0.2;           // C is multiplied by exp(-rate (fraction - quantile))
  double count_deviation = 0;  // sigma_b: of the noise on the count
};

// The count of a logical batch (ClipTally::clip_count, added over micro-batches and ranks), which
// one sample, added or removed, moves by 1/2, with its noise: the only form in which it may be used
// or shown. The same on every rank; the key is derived for KeyDomain::clip_count (stream_key.h).
double noisy_clip_count(double count, const AdaptiveClip& adaptive, NoiseGenerator generator,
                        const ChaChaKey& key, int64_t step);
// C after a step with this count, already noisy, over an expected batch of E.
double next_clip_norm(const AdaptiveClip& adaptive, double clip_norm, double noisy_count,
                      double expected_batch);
// Noise multiplier for the gradients, so that they and the count together cost what sigma alone
// does: (sigma^-2 - (2 sigma_b)^-2)^(-1/2). UserError unless 2 sigma_b exceeds sigma.
double adaptive_gradient_sigma(double sigma, double count_deviation);

}  // namespace veil::privacy
