// What a layer tells of its parameters in backward. The layer reports raw material; the sink decides what becomes of it: a sum, squared norms,
// per-sample gradients, or a booking for later. The batch is first in every shape.
//
// One report covers whole samples. Several may split a parameter's rows or the batch; none may split one sample's tokens, for norms do not add
// over tokens.
#pragma once

#include "tensor/device.h"

namespace veil {

using ParamId = int;  // index into ModelShape::params

class GradSink {
 public:
  virtual ~GradSink() = default;
  // dW_i = g_i^T a_i, for the weight's rows [row, row + p). a [batch, (tokens,) d], g [batch, (tokens,) p].
  virtual void linear(ParamId weight, int64_t row, const Tensor& a, const Tensor& g) = 0;
  // Already one gradient a sample: biases, norm weights. per_sample [batch, ...the parameter's shape].
  virtual void direct(ParamId param, const Tensor& per_sample) = 0;
};

}  // namespace veil
