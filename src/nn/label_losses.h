// The losses of a classifier's scores, which both of its heads end with.
#pragma once

#include <ATen/ops/full.h>

#include "kernels/cross_entropy.h"

namespace veil {

// Of scores [batch, labels]: losses fp64 [batch], and what their gradient is made of.
struct LabelLosses {
  Tensor weights, losses, state;
  LabelLosses(const Tensor& scores, const Tensor& targets) {
    const int64_t samples = scores.size(0);
    const DType real = sum_dtype(scores.scalar_type());
    weights = at::full({samples}, 1.0, scores.options().dtype(real));
    losses = empty_tensor({samples}, at::kDouble, scores.device());
    state = empty_tensor({samples, 3}, real, scores.device());
    cross_entropy_scan(scores, 0, targets, state);
    cross_entropy_losses(state, targets.view({-1, 1}), weights, losses);
  }
};

}  // namespace veil
