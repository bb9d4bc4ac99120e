#include "nn/classifier.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/squared_error.h"
#include "nn/label_losses.h"
#include "tensor/category.h"

namespace veil {

Tensor Classifier::logits(const Params& params, const Flow& last) const {
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, last.hidden, {}, statistics);
  return at::mm(x.view({-1, l_.hidden}), params[l_.score].t());
}

Evaluation Classifier::evaluate(const Params& params, const Flow& last, const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const Tensor scores = logits(params, last);
  return {LabelLosses(scores, batch.targets).losses, scores.argmax(1).eq(batch.targets)};
}

void Classifier::set_trained(const std::vector<bool>& trained, bool below) {
  below_ = below;
  makes_grad_ = below || l_.norm.trains(trained);
}

Flow Classifier::run(const Params& params, const Flow& last, const Batch& batch,
                     const Tensor& loss_sum, GradSink& sink) const {
  const Tensor& hidden = last.hidden;
  const int64_t samples = hidden.size(0);
  Tensor grad = below_ ? at::empty_like(hidden) : Tensor();
  CategoryScope scope(Category::temporary);
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, hidden, {}, statistics);  // [batch, 1, hidden]
  const Tensor scores = at::mm(x.view({-1, l_.hidden}), params[l_.score].t());
  const LabelLosses loss(scores, batch.targets);
  add_losses(loss.losses, loss_sum);
  cross_entropy_grad(scores, 0, batch.targets, loss.state, loss.weights);
  sink.linear({l_.score}, x, scores.view({samples, 1, l_.labels}));
  if (!makes_grad_) return {};
  if (!below_) grad = at::empty_like(hidden);
  Tensor d_token = grad.view({-1, l_.hidden});
  at::mm_out(d_token, scores, params[l_.score]);
  l_.norm.backward(params, grad, hidden, statistics, /*residual=*/{}, sink);
  return below_ ? Flow{grad} : Flow{};
}

BlockShape Classifier::shape(int64_t batch, DType compute, bool on_gpu) const {
  BlockShape shape;
  shape.name = "head";
  l_.norm.add_shape(shape, batch);
  shape.params.push_back(l_.score);
  shape.reports.push_back(
      {l_.score, l_.labels * l_.hidden, Report::By::linear, false, batch, 1, l_.labels, l_.hidden});
  const int64_t real = dtype_bytes(sum_dtype(compute)),
                row = batch * l_.hidden * dtype_bytes(compute);
  shape.output_bytes = below_ ? row : 0;
  // The token behind its norm, the scores, and what their losses need.
  const int64_t lasting = row + l_.norm.statistics_bytes(batch, compute) +
                          batch * l_.labels * dtype_bytes(compute) +
                          batch * (4 * real + dtype_bytes(at::kDouble));
  shape.forward_scratch_bytes = lasting;
  const int64_t ending =
      lasting + (below_ ? 0 : row) + l_.norm.backward_scratch_bytes(batch, 1, compute, on_gpu);
  shape.late_scratch_bytes = makes_grad_ ? ending : 0;
  shape.forward_flops = 2 * batch * l_.hidden * l_.labels;
  return shape;
}

}  // namespace veil
