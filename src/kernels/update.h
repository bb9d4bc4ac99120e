// One fused optimizer step over a flat shard: SGD (with momentum) or AdamW.
#pragma once

#include "kernels/update_rule.h"
#include "tensor/device.h"

namespace veil {

// param [n] fp32, fp64 or bf16; grad [n] of any floating type; state [states * n] in fp64 where
// param is, otherwise in fp32 or bf16, undefined for plain SGD. knobs: fp64, begins with an
// UpdateKnobs, on param's device. first_index is the model-wide index of param[0]; it keys the
// rounding to bf16.
void update_shard(const Tensor& param, const Tensor& grad, const Tensor& state, const Tensor& knobs,
                  const UpdateRule& rule, int64_t first_index);

}  // namespace veil
