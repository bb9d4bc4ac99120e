// The knobs of a step: eight doubles in device memory that kernels of a captured graph read. An UpdateKnobs (update_rule.h) first, then the places below.
#pragma once

#include "tensor/device.h"

namespace veil {

inline constexpr int64_t kScaleKnob = 1;        // UpdateKnobs::scale
inline constexpr int64_t kSquaredNormKnob = 5;  // of the summed gradient
inline constexpr int64_t kMaxNormKnob = 6;      // 0: no limit
inline constexpr int64_t kLossKnob = 7;         // sum of the samples' losses

// scale *= min(1, max_norm / (|scale * gradient| + 1e-6)), where a limit is set.
void clip_scale(const Tensor& knobs);

}  // namespace veil
