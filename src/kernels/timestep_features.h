// What a diffusion model's conditioning starts from: a timestep's sines and cosines, and a label.
#pragma once

#include "tensor/device.h"

namespace veil {

// condition [batch] int64: timestep * labels + label, so that one number per sample says both.
// features [batch, width] of any floating type, width even: cos(t f_k), then sin(t f_k), with f_k =
// 10000^(-2 k / width), in fp64 whatever the type is. ids [batch] int64: the labels.
void timestep_features(const Tensor& condition, int64_t labels, const Tensor& features,
                       const Tensor& ids);

}  // namespace veil
