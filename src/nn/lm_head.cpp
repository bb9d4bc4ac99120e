#include "nn/lm_head.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/squared_error.h"
#include "tensor/category.h"

namespace veil {

namespace {

constexpr int64_t kStateColumns = 3;  // kernels/cross_entropy.h

}  // namespace

int64_t LmHead::piece_bytes_for(DType compute) {
  return dtype_bytes(compute) == 2 ? int64_t{1280} << 20 : int64_t{64} << 20;
}

LmHead::Pieces LmHead::pieces(int64_t batch, DType compute) const {
  const int64_t most = l_.piece_bytes > 0 ? l_.piece_bytes : piece_bytes_for(compute);
  const int64_t sample = l_.tokens * l_.vocabulary * dtype_bytes(compute);
  if (sample <= most) return {std::clamp<int64_t>(most / sample, 1, batch), l_.vocabulary};
  const int64_t columns = most / (l_.tokens * dtype_bytes(compute)) / 8 * 8;
  return {1, std::clamp<int64_t>(columns, 8, l_.vocabulary)};
}

Tensor LmHead::logits(const Params& params, const Flow& last) const {
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, last.hidden, {}, statistics);
  return at::mm(x.view({-1, l_.hidden}), params[l_.head].t())
      .view({x.size(0), x.size(1), l_.vocabulary});
}

Evaluation LmHead::evaluate(const Params& params, const Flow& last, const Batch& batch) const {
  CategoryScope scope(Category::temporary);
  const int64_t samples = last.hidden.size(0);
  const DType real = sum_dtype(last.hidden.scalar_type());
  const Device device = last.hidden.device();
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, last.hidden, {}, statistics);
  const Tensor weights = empty_tensor({samples}, real, device),
               losses = empty_tensor({samples}, at::kDouble, device);
  const Tensor state = empty_tensor({samples * l_.tokens, kStateColumns}, real, device);
  token_weights(batch.targets, weights);
  const Pieces piece = pieces(samples, x.scalar_type());
  for (int64_t i = 0; i < samples; i += piece.samples) {
    const int64_t n = std::min(piece.samples, samples - i);
    const Tensor rows = x.narrow(0, i, n).reshape({-1, l_.hidden}),
                 targets = batch.targets.narrow(0, i, n).view({-1});
    const Tensor own = state.narrow(0, i * l_.tokens, n * l_.tokens);
    for (int64_t v = 0; v < l_.vocabulary; v += piece.columns) {
      const int64_t width = std::min(piece.columns, l_.vocabulary - v);
      cross_entropy_scan(at::mm(rows, params[l_.head].narrow(0, v, width).t()), v, targets, own);
    }
  }
  cross_entropy_losses(state, batch.targets, weights, losses);
  return {losses, {}};
}

void LmHead::set_trained(const std::vector<bool>& trained, bool below) {
  makes_grad_ = below || l_.norm.trains(trained);
}

Flow LmHead::run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
                 GradSink& sink) const {
  const Tensor& hidden = last.hidden;  // [batch, tokens, hidden]
  const int64_t samples = hidden.size(0);
  const DType real = sum_dtype(hidden.scalar_type());
  const Tensor grad = makes_grad_ ? at::empty_like(hidden) : Tensor();
  CategoryScope scope(Category::temporary);
  Norm::Statistics statistics;
  const Tensor x = l_.norm.forward(params, hidden, {}, statistics);
  const Tensor weights = empty_tensor({samples}, real, hidden.device());
  const Tensor losses = empty_tensor({samples}, at::kDouble, hidden.device());
  const Tensor state = empty_tensor({samples * l_.tokens, kStateColumns}, real, hidden.device());
  token_weights(batch.targets, weights);
  const Tensor& head = params[l_.head];
  const Pieces piece = pieces(samples, hidden.scalar_type());
  for (int64_t i = 0; i < samples; i += piece.samples) {
    const int64_t n = std::min(piece.samples, samples - i);
    const Tensor a = x.narrow(0, i, n), rows = a.view({-1, l_.hidden});
    const Tensor targets = batch.targets.narrow(0, i, n).view({-1}),
                 weight = weights.narrow(0, i, n);
    const Tensor own = state.narrow(0, i * l_.tokens, n * l_.tokens);
    Tensor grad_rows = makes_grad_ ? grad.narrow(0, i, n).view({-1, l_.hidden}) : Tensor();
    auto columns = [&](int64_t v) {
      return head.narrow(0, v, std::min(piece.columns, l_.vocabulary - v));
    };
    Tensor logits;  // [n * tokens, columns]
    for (int64_t v = 0; v < l_.vocabulary; v += piece.columns) {
      logits.reset();
      logits = at::mm(rows, columns(v).t());
      cross_entropy_scan(logits, v, targets, own);
    }
    for (int64_t v = 0; v < l_.vocabulary; v += piece.columns) {
      if (piece.columns < l_.vocabulary) {
        logits.reset();
        logits = at::mm(rows, columns(v).t());
      }
      cross_entropy_grad(logits, v, targets, own, weight);
      sink.linear({l_.head, v, i}, a, logits.view({n, l_.tokens, -1}));
      if (!makes_grad_) continue;
      if (v == 0) {
        at::mm_out(grad_rows, logits, columns(v));
      } else {
        at::addmm_out(grad_rows, grad_rows, logits, columns(v));
      }
    }
  }
  cross_entropy_losses(state, batch.targets, weights, losses);
  add_losses(losses, loss_sum);
  if (!makes_grad_) return {};
  l_.norm.backward(params, grad, hidden, statistics, /*residual=*/{}, sink);
  return {grad};
}

BlockShape LmHead::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens;
  const Pieces piece = pieces(batch, compute);
  BlockShape shape;
  shape.name = "head";
  l_.norm.add_shape(shape, batch);
  shape.params.push_back(l_.head);
  shape.reports.push_back({l_.head, piece.columns * l_.hidden, Report::By::linear,
                           piece.samples < batch, piece.samples, l_.tokens, piece.columns,
                           l_.hidden});
  shape.output_bytes = makes_grad_ ? rows * l_.hidden * dtype_bytes(compute) : 0;
  const int64_t lasting = rows * l_.hidden * dtype_bytes(compute) +
                          l_.norm.statistics_bytes(rows, compute) +
                          rows * kStateColumns * dtype_bytes(sum_dtype(compute)) +
                          batch * (dtype_bytes(sum_dtype(compute)) + dtype_bytes(at::kDouble));
  shape.forward_scratch_bytes =
      lasting + piece.samples * l_.tokens * piece.columns * dtype_bytes(compute);
  shape.late_scratch_bytes =
      makes_grad_ ? lasting + l_.norm.backward_scratch_bytes(batch, l_.tokens, compute, on_gpu) : 0;
  const bool twice = piece.columns < l_.vocabulary;
  const int64_t product = 2 * rows * l_.hidden * l_.vocabulary;
  shape.forward_flops = product * (twice ? 2 : 1);
  shape.repeated_flops = twice ? product : 0;
  return shape;
}

}  // namespace veil
