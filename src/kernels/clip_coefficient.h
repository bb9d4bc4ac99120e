// What a sample's gradient is multiplied by so that its norm stays below C: shared by CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/philox.h"

namespace veil {

// Whether a squared norm is a number at all: a sample for which it is not contributes nothing. Without isfinite, which the host and the device name differently.
VEIL_HOST_DEVICE bool usable_squared_norm(double squared_norm) {
  return squared_norm - squared_norm == 0;
}

// A Gram matrix's sum can round below 0.
VEIL_HOST_DEVICE double clamped_norm(double squared_norm) {
  return squared_norm > 0 ? sqrt(squared_norm) : 0;
}

// min(1, C / (n + 1e-6)): Abadi et al., "Deep Learning with Differential Privacy" (2016), with the usual guard.
VEIL_HOST_DEVICE double abadi_coefficient(double squared_norm, double clip_norm) {
  if (!usable_squared_norm(squared_norm)) return 0;
  const double factor = clip_norm / (clamped_norm(squared_norm) + 1e-6);
  return factor < 1 ? factor : 1;
}

// C / (n + 0.01): Bu, Wang, Zha and Karypis, "Automatic Clipping" (2023). Small gradients grow.
VEIL_HOST_DEVICE double automatic_coefficient(double squared_norm, double clip_norm) {
  if (!usable_squared_norm(squared_norm)) return 0;
  return clip_norm / (clamped_norm(squared_norm) + 0.01);
}

// What a rank counts while it clips: fp64 [kClipFacts]. Not private.
enum ClipFact { kFactSamples, kFactBadSamples, kFactClipCount };
inline constexpr int kClipFacts = 3;

// One sample's coefficients for some layers. squared [params, samples] is looked at in its column `i`.
VEIL_HOST_DEVICE void sample_coefficients(const double* squared, const int32_t* layers, const double* clip_norms,
                                          const uint8_t* counted, double* coefficients, double* facts, int64_t params,
                                          int64_t samples, int first_layer, int end_layer, bool automatic, int64_t i) {
  const bool counts = counted == nullptr || counted[i] != 0;
  bool usable = true;
  for (int64_t p = 0; p < params; ++p) usable = usable && usable_squared_norm(squared[p * samples + i]);
  double whole = 0;
  for (int layer = first_layer; layer < end_layer; ++layer) {
    double sum = 0;
    for (int64_t p = 0; p < params; ++p) sum += layers[p] == layer ? squared[p * samples + i] : 0;
    whole += sum;
    usable = usable && usable_squared_norm(sum);
    const double c =
        automatic ? automatic_coefficient(sum, clip_norms[layer]) : abadi_coefficient(sum, clip_norms[layer]);
    coefficients[layer * samples + i] = counts && usable ? c : 0;
  }
  if (!usable) {  // found in a later layer of these
    for (int layer = first_layer; layer < end_layer; ++layer) coefficients[layer * samples + i] = 0;
  }
  if (facts == nullptr || !counts) return;
  facts[kFactSamples] += 1;
  if (!usable) {
    facts[kFactBadSamples] += 1;
  } else {
    facts[kFactClipCount] += clamped_norm(whole) <= clip_norms[0] ? 0.5 : -0.5;
  }
}

}  // namespace veil
