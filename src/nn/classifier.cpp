#include "nn/classifier.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/cross_entropy.h"
#include "kernels/squared_error.h"
#include "tensor/category.h"

namespace veil {

Tensor Classifier::positions(const Tensor& ids) const {
  const int64_t tokens = ids.size(1);
  if (l_.padding_id < 0) return at::full({ids.size(0)}, tokens - 1, ids.options());
  // all padding: position 0
  return ids.ne(l_.padding_id).mul(at::arange(tokens, ids.options())).amax(1);
}

Tensor Classifier::pooled(const Tensor& hidden, const Tensor& positions) const {
  return hidden.gather(1, positions.view({-1, 1, 1}).expand({hidden.size(0), 1, l_.hidden}));
}

Tensor Classifier::logits(const Params& params, const Flow& last, const Batch& batch) const {
  Norm::Statistics statistics;
  const Tensor x =
      l_.norm.forward(params, pooled(last.hidden, positions(batch.inputs)), {}, statistics);
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
  const Tensor at_token = positions(batch.inputs), token = pooled(hidden, at_token);
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
  grad.scatter_(1, at_token.view({-1, 1, 1}).expand({samples, 1, l_.hidden}), d_token);
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
  // Finding the last token: a mask, positions and their product. Then a few rows per sample.
  shape.forward_scratch_bytes = batch * l_.tokens * (1 + 8) + l_.tokens * 8 +
                                batch * (2 * l_.hidden + l_.labels) * dtype_bytes(compute);
  if (makes_grad_)
    shape.forward_scratch_bytes += batch * l_.hidden * dtype_bytes(compute) +
                                   l_.norm.backward_scratch_bytes(batch, 1, compute, on_gpu);
  shape.forward_flops = 2 * batch * l_.hidden * l_.labels;
  return shape;
}

}  // namespace veil
