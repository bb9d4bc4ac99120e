// What a sample's gradient is multiplied by so that its norm stays below C: shared by CPU and CUDA.
#pragma once

#include <cmath>

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

}  // namespace veil
