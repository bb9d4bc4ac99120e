// The arithmetic of clip_scale, shared by the CPU reference and the CUDA kernel.
#pragma once

#include <cmath>

#include "kernels/philox.h"

namespace veil {

VEIL_HOST_DEVICE double clipped_scale(double scale, double squared_norm, double max_norm) {
  if (max_norm <= 0) return scale;
  const double factor = max_norm / (scale * sqrt(squared_norm) + 1e-6);
  return factor < 1 ? scale * factor : scale;
}

}  // namespace veil
