#include "nn/noise_head.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/modulation.h"
#include "kernels/norm.h"
#include "kernels/squared_error.h"
#include "tensor/category.h"

namespace veil {
namespace {

enum Piece { kShift, kScale };

}  // namespace

NoiseHead::Predicted NoiseHead::forward(const Params& params, const Flow& last) const {
  const Tensor& x = last.hidden;  // [batch, tokens, hidden]
  const DType real = sum_dtype(x.scalar_type());
  const int64_t rows = x.size(0) * x.size(1);
  Predicted p;
  p.modulation = l_.modulation.forward(params, last.condition);
  p.normed = at::empty_like(x);
  p.mean = empty_tensor({rows}, real, x.device());
  p.rstd = empty_tensor({rows}, real, x.device());
  modulated_norm(x, {}, {}, l_.modulation.piece(p.modulation, kScale),
                 l_.modulation.piece(p.modulation, kShift), l_.epsilon, {}, p.normed, p.mean,
                 p.rstd);
  p.patches = l_.linear.forward(params, p.normed);
  return p;
}

Tensor NoiseHead::predict(const Params& params, const Flow& last) const {
  return l_.grid.image(forward(params, last).patches);
}

Evaluation NoiseHead::evaluate(const Params& params, const Flow& last, const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const Tensor losses = empty_tensor({last.hidden.size(0)}, at::kDouble, last.hidden.device());
  const Tensor patches = forward(params, last).patches;
  squared_error(patches, l_.grid.channels_last(batch.targets), patches, losses);
  return {losses, {}};
}

Flow NoiseHead::run(const Params& params, const Flow& last, const Batch& batch,
                    const Tensor& loss_sum, GradSink& sink) const {
  const Tensor& x = last.hidden;
  const Tensor dx = at::empty_like(x);
  Tensor grads;
  {
    CategoryScope scope(Category::temporary);
    Predicted p = forward(params, last);
    {
      const Tensor losses = empty_tensor({x.size(0)}, at::kDouble, x.device());
      // the gradient in its place
      squared_error(p.patches, l_.grid.channels_last(batch.targets), p.patches, losses);
      // text's padding has no targets; an image's has
      if (batch.counted.defined()) losses.mul_(batch.counted);
      add_losses(losses, loss_sum);
    }
    l_.linear.report(sink, p.normed, p.patches);
    p.normed.reset();
    l_.linear.input_grad(params, p.patches, dx);
    grads = empty_tensor({x.size(0), l_.modulation.pieces * l_.hidden}, sum_dtype(x.scalar_type()),
                         x.device());
    modulated_norm_backward(dx, x, l_.modulation.piece(p.modulation, kScale), p.mean, p.rstd,
                            /*residual=*/{}, dx, l_.modulation.piece(grads, kScale),
                            l_.modulation.piece(grads, kShift));
  }
  return {dx, l_.modulation.backward(params, last.condition, grads, {}, sink)};
}

BlockShape NoiseHead::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t tokens = l_.grid.tokens(), rows = batch * tokens, element = dtype_bytes(compute),
                real = dtype_bytes(sum_dtype(compute));
  const int64_t hidden = rows * l_.hidden * element,
                patches = rows * l_.grid.patch_numel() * element;
  const int64_t condition_grad = condition_grad_bytes(batch, l_.hidden, compute);
  BlockShape shape;
  shape.name = "head";
  shape.output_bytes = hidden + condition_grad;
  // Beside the gradient that it returns, which is counted from the start; the conditioning's part
  // of it is made last.
  const int64_t kept = l_.modulation.bytes(batch, compute) + 2 * rows * real;
  l_.modulation.map.add_shape(shape, batch, 1);
  l_.modulation.map.set_moment(shape,
                               l_.modulation.grads_bytes(batch, compute) +
                                   l_.modulation.narrow_bytes(batch, compute) - condition_grad,
                               0);
  l_.linear.add_shape(shape, batch, tokens);
  l_.linear.set_moment(shape, kept + hidden + patches - condition_grad, 0,
                       batch * l_.linear.out * real);
  const int64_t moments[] = {
      kept + hidden + 2 * patches + batch * dtype_bytes(at::kDouble) - condition_grad,
      kept + hidden + patches + l_.linear.report_scratch_bytes(batch, tokens, compute, on_gpu) -
          condition_grad,
      kept + patches + l_.modulation.grads_bytes(batch, compute) +
          2 * norm_backward_scratch_bytes(batch, tokens, l_.hidden, compute, on_gpu) -
          condition_grad,
      l_.modulation.grads_bytes(batch, compute) +
          l_.modulation.backward_scratch_bytes(batch, compute),
  };
  shape.late_scratch_bytes = *std::max_element(std::begin(moments), std::end(moments));
  shape.forward_flops = l_.modulation.map.flops(batch) + l_.linear.flops(rows);
  return shape;
}

}  // namespace veil
