// A sample's shifts, scales and gates, which a linear map makes of its conditioning (adaLN). Part
// of a block, not a block itself.
#pragma once

#include "nn/projection.h"

namespace veil {

struct Modulation {
  Projection map;  // [pieces * width, width]
  int64_t width = 0, pieces = 0;

  // [batch, width] -> [batch, pieces * width]
  Tensor forward(const Params& params, const Tensor& condition) const;
  // Piece i of what forward made, or of its gradient: [batch, width], a view.
  Tensor piece(const Tensor& all, int64_t i) const { return all.narrow(1, i * width, width); }
  // Reports the map from `grads` [batch, pieces * width], fp32 (fp64 if the model is), and
  // answers the conditioning's gradient of the same type: `before` (may be undefined) plus its own.
  Tensor backward(const Params& params, const Tensor& condition, const Tensor& grads,
                  const Tensor& before, GradSink& sink) const;

  int64_t bytes(int64_t batch, DType compute) const {
    return batch * pieces * width * dtype_bytes(compute);
  }
  int64_t grads_bytes(int64_t batch, DType compute) const {
    return bytes(batch, sum_dtype(compute));
  }
  // Narrowed `grads`, which backward reports with them; 0 if they are of the compute type.
  int64_t narrow_bytes(int64_t batch, DType compute) const {
    return compute == sum_dtype(compute) ? 0 : bytes(batch, compute);
  }
  // Of backward, in addition to `grads`; the gradient that it answers is not counted.
  int64_t backward_scratch_bytes(int64_t batch, DType compute) const;
};

// What the conditioning's gradient takes.
int64_t condition_grad_bytes(int64_t batch, int64_t width, DType compute);

}  // namespace veil
