#include "nn/classifier.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/squared_error.h"
#include "tensor/category.h"

namespace veil {

Tensor Classifier::last_rows(const Tensor& ids) const {
  const int64_t samples = ids.size(0), tokens = ids.size(1);
  const Tensor rows = at::arange(samples, ids.options()).mul_(tokens);
  if (l_.padding_id < 0) return rows.add_(tokens - 1);
  // all padding: position 0
  return rows.add_(ids.ne(l_.padding_id).mul(at::arange(tokens, ids.options())).amax(1));
}

Tensor Classifier::pooled(const Tensor& hidden, const Tensor& rows) const {
  return hidden.view({-1, l_.hidden}).index_select(0, rows).view({-1, 1, l_.hidden});
}

Tensor Classifier::logits(const Params& params, const Flow& last, const Batch& batch) const {
  Norm::Statistics statistics;
  const Tensor x =
      l_.norm.forward(params, pooled(last.hidden, last_rows(batch.inputs)), {}, statistics);
  return at::mm(x.view({-1, l_.hidden}), params[l_.score].t());
}

Evaluation Classifier::evaluate(const Params& params, const Flow& last, const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const int64_t samples = last.hidden.size(0);
  const DType real = sum_dtype(last.hidden.scalar_type());
  const Tensor scores = logits(params, last, batch);
  const Tensor weights = at::full({samples}, 1.0, scores.options().dtype(real));
  const Tensor losses = empty_tensor({samples}, at::kDouble, scores.device());
  const Tensor state = empty_tensor({samples, 3}, real, scores.device());
  cross_entropy_scan(scores, 0, batch.targets, state);
  cross_entropy_losses(state, batch.targets.view({-1, 1}), weights, losses);
  return {losses, scores.argmax(1).eq(batch.targets)};
}

void Classifier::set_trained(const std::vector<bool>& trained, bool below) {
  below_ = below;
  makes_grad_ = below || l_.norm.trains(trained);
}

Flow Classifier::run(const Params& params, const Flow& last, const Batch& batch,
                     const Tensor& loss_sum, GradSink& sink) const {
  const Tensor& hidden = last.hidden;
  const int64_t samples = hidden.size(0);
  const DType real = sum_dtype(hidden.scalar_type());
  const Tensor grad = below_ ? at::zeros_like(hidden) : Tensor();
  CategoryScope scope(Category::temporary);
  const Tensor rows = last_rows(batch.inputs), token = pooled(hidden, rows);
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, token, {}, statistics);  // [batch, 1, hidden]
  const Tensor scores = at::mm(x.view({-1, l_.hidden}), params[l_.score].t());
  const Tensor weights = at::full({samples}, 1.0, scores.options().dtype(real));
  const Tensor losses = empty_tensor({samples}, at::kDouble, scores.device());
  const Tensor state = empty_tensor({samples, 3}, real, scores.device());
  cross_entropy_scan(scores, 0, batch.targets, state);
  cross_entropy_losses(state, batch.targets.view({-1, 1}), weights, losses);
  add_losses(losses, loss_sum);
  cross_entropy_grad(scores, 0, batch.targets, state, weights);
  sink.linear({l_.score}, x, scores.view({samples, 1, l_.labels}));
  if (!makes_grad_) return {};
  const Tensor d_token = at::mm(scores, params[l_.score]).view({samples, 1, l_.hidden});
  l_.norm.backward(params, d_token, token, statistics, /*residual=*/{}, sink);
  if (!below_) return {};
  grad.view({-1, l_.hidden}).index_copy_(0, rows, d_token.view({-1, l_.hidden}));
  return {grad};
}

BlockShape Classifier::shape(int64_t batch, DType compute, bool on_gpu) const {
  BlockShape shape;
  shape.name = "head";
  l_.norm.add_shape(shape, batch);
  shape.params.push_back(l_.score);
  shape.reports.push_back(
      {l_.score, l_.labels * l_.hidden, Report::By::linear, false, batch, 1, l_.labels, l_.hidden});
  shape.output_bytes = below_ ? batch * l_.tokens * l_.hidden * dtype_bytes(compute) : 0;
  const int64_t real = dtype_bytes(sum_dtype(compute)), index = dtype_bytes(at::kLong),
                row = batch * l_.hidden * dtype_bytes(compute), ids = batch * l_.tokens;
  // Rows of the last tokens, the token before and after its norm, the scores, and what their
  // losses need.
  const int64_t lasting = batch * index + 2 * row + l_.norm.statistics_bytes(batch, compute) +
                          batch * l_.labels * dtype_bytes(compute) +
                          batch * (4 * real + dtype_bytes(at::kDouble));
  shape.forward_scratch_bytes = lasting;
  // Finding the last token: a mask, a row of numbers, their product, and on a CPU the mask as wide
  // as the product.
  const int64_t finding =
      l_.padding_id < 0 ? 0
                        : batch * index + ids + l_.tokens * index + ids * index * (on_gpu ? 1 : 2);
  const int64_t ending =
      makes_grad_ ? lasting + row + l_.norm.backward_scratch_bytes(batch, 1, compute, on_gpu) : 0;
  shape.late_scratch_bytes = std::max(finding, ending);
  shape.forward_flops = 2 * batch * l_.hidden * l_.labels;
  return shape;
}

}  // namespace veil
