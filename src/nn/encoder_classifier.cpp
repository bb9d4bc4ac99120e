#include "nn/encoder_classifier.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include <algorithm>

#include "kernels/squared_error.h"
#include "nn/label_losses.h"
#include "tensor/category.h"

namespace veil {
Tensor EncoderClassifier::logits(const Params& params, const Flow& last) const {
  Tensor active = l_.dense.forward(params, last.hidden).tanh_();
  return l_.out.forward(params, active).view({-1, l_.out.out});
}

Evaluation EncoderClassifier::evaluate(const Params& params, const Flow& last,
                                       const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const Tensor scores = logits(params, last);
  return {LabelLosses(scores, batch.targets).losses, scores.argmax(1).eq(batch.targets)};
}

Flow EncoderClassifier::run(const Params& params, const Flow& last, const Batch& batch,
                            const Tensor& loss_sum, GradSink& sink) const {
  const int64_t samples = last.hidden.size(0);
  const Tensor& token = last.hidden;
  const Tensor d_token = at::empty_like(token);
  CategoryScope scope(Category::temporary);
  Tensor active = l_.dense.forward(params, token).tanh_();
  const Tensor scores = l_.out.forward(params, active).view({samples, -1});
  const LabelLosses loss(scores, batch.targets);
  add_losses(loss.losses, loss_sum);
  cross_entropy_grad(scores, 0, batch.targets, loss.state, loss.weights);
  const Tensor d_scores = scores.view({samples, 1, -1});
  l_.out.report(sink, active, d_scores);
  const Tensor d_active = at::empty_like(active);
  l_.out.input_grad(params, d_scores, d_active);
  const Tensor d_dense = at::tanh_backward(d_active, active);
  l_.dense.report(sink, token, d_dense);
  l_.dense.input_grad(params, d_dense, d_token);
  return {d_token};
}

BlockShape EncoderClassifier::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t row = batch * dtype_bytes(compute), hidden = row * l_.dense.in,
                labels = row * l_.out.out, real = dtype_bytes(sum_dtype(compute));
  BlockShape shape;
  shape.name = "head";
  l_.dense.add_shape(shape, batch, 1);
  l_.out.add_shape(shape, batch, 1);
  shape.output_bytes = hidden;
  // All the while the scores, and their losses' state. With them one row of the hidden width per
  // sample when the labels' layer reports, and three when the dense layer does.
  const int64_t lasting = labels + batch * (4 * real + dtype_bytes(at::kDouble));
  l_.out.set_moment(shape, lasting + hidden, 0, batch * l_.out.out * real);
  l_.dense.set_moment(shape, lasting + 3 * hidden, 0, batch * l_.dense.out * real);
  shape.late_scratch_bytes =
      lasting + std::max(hidden + l_.out.report_scratch_bytes(batch, 1, compute, on_gpu),
                         3 * hidden + l_.dense.report_scratch_bytes(batch, 1, compute, on_gpu));
  shape.forward_flops = l_.dense.flops(batch) + l_.out.flops(batch);
  return shape;
}

}  // namespace veil
