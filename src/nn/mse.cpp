#include "nn/mse.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>

namespace veil {

Flow MeanSquaredError::run(const Params&, const Flow& last, const Batch& batch, const Tensor& loss_sum, GradSink&) const {
  Tensor g = at::sub(last.hidden, batch.targets);  // [batch, width]
  Tensor norm = at::linalg_vector_norm(g, 2, at::IntArrayRef{}, false, loss_sum.scalar_type());
  loss_sum.add_(norm.mul_(norm), 1.0 / static_cast<double>(width_));
  g.mul_(2.0 / static_cast<double>(width_));
  return {g};
}

BlockShape MeanSquaredError::shape(int64_t batch, DType compute) const {
  BlockShape shape;
  shape.name = "loss";
  shape.output_bytes = batch * width_ * dtype_bytes(compute);
  shape.forward_scratch_bytes = dtype_bytes(at::kDouble);  // the norm
  return shape;
}

}  // namespace veil
