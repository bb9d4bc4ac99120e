#include "nn/mse.h"

#include <ATen/ops/empty_like.h>

#include "kernels/squared_error.h"
#include "tensor/category.h"

namespace veil {

Flow MeanSquaredError::run(const Params&, const Flow& last, const Batch& batch,
                           const Tensor& loss_sum, GradSink&) const {
  Tensor grad = at::empty_like(last.hidden);  // [batch, width]
  CategoryScope scope(Category::temporary);
  const Tensor losses = empty_tensor({last.hidden.size(0)}, at::kDouble, last.hidden.device());
  squared_error(last.hidden, batch.targets, grad, losses);
  add_losses(losses, loss_sum);
  return {grad};
}

Evaluation MeanSquaredError::evaluate(const Params&, const Flow& last, const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const Tensor losses = empty_tensor({last.hidden.size(0)}, at::kDouble, last.hidden.device());
  squared_error(last.hidden, batch.targets, at::empty_like(last.hidden), losses);
  return {losses, {}};
}

BlockShape MeanSquaredError::shape(int64_t batch, DType compute, bool) const {
  BlockShape shape;
  shape.name = "loss";
  shape.output_bytes = batch * width_ * dtype_bytes(compute);
  shape.forward_scratch_bytes = batch * dtype_bytes(at::kDouble);  // the samples' losses
  return shape;
}

}  // namespace veil
