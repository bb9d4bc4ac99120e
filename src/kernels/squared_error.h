// Mean squared error per sample, its gradient, and the losses' sum, in two small kernels.
#pragma once

#include "tensor/device.h"

namespace veil {

// losses[i] = mean over j of (output[i, j] - target[i, j])^2 in fp64; grad[i, j] = 2 (output -
// target) / width. output, target and grad are contiguous [batch, width] of one type; losses
// [batch] fp64. Sums run in a fixed order.
void squared_error(const Tensor& output, const Tensor& target, const Tensor& grad,
                   const Tensor& losses);

// total[0] += the sum of losses, in a fixed order. Both fp64.
void add_losses(const Tensor& losses, const Tensor& total);

}  // namespace veil
