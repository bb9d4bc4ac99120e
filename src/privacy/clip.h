// Clip coefficients: how much of each sample's gradient goes into the sum, and how far one sample can move it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/names.h"
#include "kernels/noise_values.h"

namespace veil::privacy {

// abadi: min(1, C / (n + 1e-6)). automatic: C / (n + 0.01). per_layer: abadi for each layer with its own C_l. adaptive: abadi with a C that follows a quantile of the
// norms. n is the norm of a sample's gradient, over all parameters or over a layer's.
enum class ClipFunction { abadi, automatic, per_layer, adaptive };
const NameTable<ClipFunction>& names(ClipFunction);

struct Coefficients {
  std::vector<double> values;  // one a sample, or [layers, samples]; exactly 0 for a bad sample
  int64_t bad_samples = 0;     // whose squared norm is not finite. Not private.
};

// Of squared norms [samples]; one below 0 counts as 0. For per_layer see below. A sample moves the sum of coefficient * gradient by C at most, to fp64's rounding.
Coefficients clip_coefficients(ClipFunction function, const std::vector<double>& squared_norms, double clip_norm);

// squared_norms [layers, samples], clip_norms [layers]. A sample that is bad in one layer is left out of all.
Coefficients layer_coefficients(const std::vector<double>& squared_norms, const std::vector<double>& clip_norms);
// How far one sample moves the layers' clipped sums together: sqrt(sum C_l^2).
double layer_sensitivity(const std::vector<double>& clip_norms);
// Equal C_l with the sensitivity C.
std::vector<double> equal_layer_norms(double clip_norm, int64_t layers);

// Adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping", 2021): each logical batch releases one noisy
// count of the samples below C, and C moves towards a quantile of the norms.
struct AdaptiveClip {
  double quantile = 0.5;
  double rate = 0.2;           // C is multiplied by exp(-rate (fraction - quantile))
  double count_deviation = 0;  // sigma_b: of the noise on the count
};

// Sum over good samples of 1/2 where the norm is at most C and -1/2 where it is more: one sample, added or removed, moves it by 1/2. Micro-batches and ranks add up.
double clip_count(const std::vector<double>& squared_norms, double clip_norm);
// The count with its noise: the only form in which it may be used or shown. The same on every rank; the key is derived for KeyDomain::clip_count (stream_key.h).
double noisy_clip_count(double count, const AdaptiveClip& adaptive, NoiseGenerator generator, const ChaChaKey& key,
                        int64_t step);
// C after a step with this count, already noisy, over an expected batch of E.
double next_clip_norm(const AdaptiveClip& adaptive, double clip_norm, double noisy_count, double expected_batch);
// Noise multiplier for the gradients, so that they and the count together cost what sigma alone does: (sigma^-2 - (2 sigma_b)^-2)^(-1/2). UserError unless 2 sigma_b exceeds sigma.
double adaptive_gradient_sigma(double sigma, double count_deviation);

}  // namespace veil::privacy
