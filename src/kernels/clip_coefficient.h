// What a sample's gradient is multiplied by so that its norm stays below C: shared by CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/philox.h"

namespace veil {

// Gradients that are longer could make fp32 sums overflow before they are scaled.
inline constexpr double kLongestNorm = 0x1p110;

// Whether a squared norm is a number that sums can be made of: a sample for which it is not
// contributes nothing. False for what is not a number.
VEIL_HOST_DEVICE bool usable_squared_norm(double squared_norm) {
  constexpr double kLargest = kLongestNorm * kLongestNorm;
  return squared_norm <= kLargest && squared_norm >= -kLargest;
}

// A Gram matrix's sum can round below 0.
VEIL_HOST_DEVICE double clamped_norm(double squared_norm) {
  return squared_norm > 0 ? sqrt(squared_norm) : 0;
}

// How much of each sample's gradient goes into the sum, by the norm n of the gradient: over all
// parameters, or over a layer's. Whichever is chosen, a sample moves the sum by at most C.
enum class ClipFunction {
  // min(1, C / (n + 1e-6)): Abadi et al., "Deep Learning with Differential Privacy" (2016), with
  // the usual guard.
  abadi,
  // C / (n + 0.01): Bu, Wang, Zha and Karypis, "Automatic Clipping" (2023). Small gradients grow.
  automatic,
  // C / (n + r / (n + r)) with r = 0.01: Xia et al., "Differentially Private Learning with
  // Per-Sample Adaptive Clipping" (2023). As automatic, but the smallest gradients stay small.
  psac,
  per_layer,  // abadi for each layer with its own C_l
  adaptive,   // abadi with a C that follows a quantile of the norms
};

VEIL_HOST_DEVICE double clip_coefficient(ClipFunction function, double squared_norm,
                                         double clip_norm) {
  if (!usable_squared_norm(squared_norm)) return 0;
  const double n = clamped_norm(squared_norm);
  switch (function) {
    case ClipFunction::automatic:
      return clip_norm / (n + 0.01);
    case ClipFunction::psac:
      return clip_norm / (n + 0.01 / (n + 0.01));
    case ClipFunction::abadi:
    case ClipFunction::per_layer:
    case ClipFunction::adaptive:
      break;
  }
  const double factor = clip_norm / (n + 1e-6);
  return factor < 1 ? factor : 1;
}

// What a rank counts while it clips, in device memory. Not private.
struct ClipTally {
  double samples;      // that count
  double bad_samples;  // and of them those whose gradient is not finite
  double clip_count;   // 1/2 for each good sample whose norm is at most C, -1/2 for each other
};
inline constexpr int64_t kClipTally = sizeof(ClipTally) / sizeof(double);
static_assert(kClipTally == 3);

VEIL_HOST_DEVICE void add_tally(ClipTally& sum, const ClipTally& more) {
  sum.samples += more.samples;
  sum.bad_samples += more.bad_samples;
  sum.clip_count += more.clip_count;
}

// One sample's coefficients for some layers. squared [params, samples] is looked at in its column
// `i`.
VEIL_HOST_DEVICE void sample_coefficients(const double* squared, const int32_t* layers,
                                          const double* clip_norms, const uint8_t* counted,
                                          double* coefficients, ClipTally* tally, int64_t params,
                                          int64_t samples, int first_layer, int end_layer,
                                          ClipFunction function, int64_t i) {
  const bool counts = counted == nullptr || counted[i] != 0;
  bool usable = true;
  for (int64_t p = 0; p < params; ++p)
    usable = usable && usable_squared_norm(squared[p * samples + i]);
  double whole = 0;
  for (int layer = first_layer; layer < end_layer; ++layer) {
    double sum = 0;
    for (int64_t p = 0; p < params; ++p) sum += layers[p] == layer ? squared[p * samples + i] : 0;
    whole += sum;
    usable = usable && usable_squared_norm(sum);
    const double c = clip_coefficient(function, sum, clip_norms[layer]);
    coefficients[layer * samples + i] = counts && usable ? c : 0;
  }
  if (!usable) {  // found in a later layer of these
    for (int layer = first_layer; layer < end_layer; ++layer) coefficients[layer * samples + i] = 0;
  }
  if (tally == nullptr || !counts) return;
  tally->samples += 1;
  if (!usable) {
    tally->bad_samples += 1;
  } else {
    tally->clip_count += clamped_norm(whole) <= clip_norms[0] ? 0.5 : -0.5;
  }
}

}  // namespace veil
