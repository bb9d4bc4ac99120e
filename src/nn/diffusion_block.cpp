#include "nn/diffusion_block.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/modulation.h"
#include "kernels/norm.h"
#include "kernels/token_sum.h"
#include "tensor/category.h"

namespace veil {
namespace {

enum Piece { kShift, kScale, kGate, kFeedShift, kFeedScale, kFeedGate };

Tensor like(const Tensor& x, int64_t last) {
  std::vector<int64_t> dims = x.sizes().vec();
  dims.back() = last;
  return empty_tensor(dims, x.scalar_type(), x.device());
}

}  // namespace

DiffusionBlock::Saved::Saved(const Tape& tape)
    : condition(tape.saved[0]),
      modulation(tape.saved[1]),
      normed(tape.saved[2]),
      qkv(tape.saved[3]),
      attended(tape.saved[4]),
      middle(tape.saved[5]),
      middle_normed(tape.saved[6]),
      up(tape.saved[7]),
      fed(tape.saved[8]),
      mean(tape.saved[9]),
      rstd(tape.saved[10]),
      middle_mean(tape.saved[11]),
      middle_rstd(tape.saved[12]) {}

std::vector<Tensor> DiffusionBlock::Saved::list() const {
  return {condition, modulation, normed, qkv,  attended,    middle,     middle_normed,
          up,        fed,        mean,   rstd, middle_mean, middle_rstd};
}

// Everything but the output.
void DiffusionBlock::run(const Params& params, const Flow& in, Tape& tape) const {
  const Tensor& x = in.hidden;  // [batch, tokens, hidden]
  const DType real = sum_dtype(x.scalar_type());
  const int64_t rows = x.size(0) * x.size(1);
  auto statistic = [&] { return empty_tensor({rows}, real, x.device()); };
  auto piece = [&](const Saved& s, Piece i) { return l_.modulation.piece(s.modulation, i); };
  Saved s;
  s.condition = in.condition;
  s.modulation = l_.modulation.forward(params, in.condition);
  s.normed = at::empty_like(x);
  s.mean = statistic(), s.rstd = statistic();
  modulated_norm(x, {}, {}, piece(s, kScale), piece(s, kShift), l_.epsilon, {}, s.normed, s.mean,
                 s.rstd);
  s.qkv = l_.qkv.forward(params, s.normed);
  s.attended =
      l_.attention_out.forward(params, l_.attention.forward(s.qkv, /*turned=*/false, tape.kept));
  s.middle = at::empty_like(x);
  s.middle_normed = at::empty_like(x);
  s.middle_mean = statistic(), s.middle_rstd = statistic();
  modulated_norm(x, s.attended, piece(s, kGate), piece(s, kFeedScale), piece(s, kFeedShift),
                 l_.epsilon, s.middle, s.middle_normed, s.middle_mean, s.middle_rstd);
  s.up = l_.up.forward(params, s.middle_normed);
  Tensor active;
  {
    CategoryScope scope(Category::temporary);
    active = at::empty_like(s.up);
  }
  gelu(s.up, active);
  s.fed = l_.down.forward(params, active);
  tape.input = x;
  tape.saved = s.list();
}

Flow DiffusionBlock::forward(const Params& params, const Flow& in, Tape& tape) const {
  run(params, in, tape);
  const Saved s(tape);
  const Tensor out = at::empty_like(s.middle);
  gated_add(s.middle, s.fed, l_.modulation.piece(s.modulation, kFeedGate), out);
  return {out, in.condition};
}

Flow DiffusionBlock::recompute(const Params& params, const Flow& in, Tape& tape) const {
  run(params, in, tape);
  return {};
}

Flow DiffusionBlock::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                              bool) const {
  const Saved s(tape);
  const Tensor dy = grad.hidden;  // [batch, tokens, hidden]
  const int64_t batch = dy.size(0);
  const DType real = sum_dtype(dy.scalar_type());
  Tensor d_modulation, d_middle, d_qkv, qkv_sums;
  auto opened_by = [&](Piece i) { return l_.modulation.piece(s.modulation, i); };
  auto into = [&](Piece i) { return l_.modulation.piece(d_modulation, i); };
  {
    CategoryScope scope(Category::temporary);
    d_modulation = empty_tensor({batch, l_.modulation.pieces * l_.hidden}, real, dy.device());
    Tensor d_up = at::empty_like(s.up),
           up_sums = empty_tensor({batch, l_.up.out}, real, dy.device());
    {
      const Tensor d_fed = at::empty_like(dy),
                   bias_grad = empty_tensor({batch, l_.hidden}, real, dy.device());
      gated_add_backward(dy, s.fed, opened_by(kFeedGate), d_fed, into(kFeedGate), bias_grad);
      // first the gradient of the activation, then the activation itself
      const Tensor active = at::empty_like(s.up);
      l_.down.input_grad(params, d_fed, active);
      gelu_backward_summed(s.up, active, d_up, active, up_sums);
      l_.down.report(sink, active, d_fed, bias_grad);
    }
    l_.up.report(sink, s.middle_normed, d_up, up_sums);
    up_sums.reset();
    d_middle = at::empty_like(dy);
    l_.up.input_grad(params, d_up, d_middle);
    d_up.reset();
    modulated_norm_backward(d_middle, s.middle, opened_by(kFeedScale), s.middle_mean, s.middle_rstd,
                            /*residual=*/dy, d_middle, into(kFeedScale), into(kFeedShift));
    const Tensor d_context = like(dy, l_.attention.width());
    {
      const Tensor d_attended = at::empty_like(dy),
                   bias_grad = empty_tensor({batch, l_.hidden}, real, dy.device());
      gated_add_backward(d_middle, s.attended, opened_by(kGate), d_attended, into(kGate),
                         bias_grad);
      l_.attention_out.report(sink, tape.kept[0], d_attended, bias_grad);
      l_.attention_out.input_grad(params, d_attended, d_context);
    }
    qkv_sums = empty_tensor({batch, l_.qkv.out}, real, dy.device());
    d_qkv = l_.attention.backward_summed(d_context, s.qkv, tape.kept, qkv_sums);
  }
  l_.qkv.report(sink, s.normed, d_qkv, qkv_sums);
  qkv_sums.reset();
  const Tensor dx = at::empty_like(dy);
  l_.qkv.input_grad(params, d_qkv, dx);
  d_qkv.reset();
  modulated_norm_backward(dx, tape.input, opened_by(kScale), s.mean, s.rstd, /*residual=*/d_middle,
                          dx, into(kScale), into(kShift));
  d_middle.reset();
  return {dx, l_.modulation.backward(params, s.condition, d_modulation, grad.condition, sink)};
}

BlockShape DiffusionBlock::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens, row = dtype_bytes(compute) * rows,
                real = dtype_bytes(sum_dtype(compute));
  const int64_t hidden = row * l_.hidden, feed = row * l_.feed, joint = row * l_.qkv.out,
                context = row * l_.attention.width();
  const int64_t condition_grad = condition_grad_bytes(batch, l_.hidden, compute);
  BlockShape shape;
  shape.name = l_.name;
  l_.modulation.map.add_shape(shape, batch, 1);
  for (const Projection* map : {&l_.qkv, &l_.attention_out, &l_.up, &l_.down})
    map->add_shape(shape, batch, l_.tokens);
  shape.output_bytes = hidden;
  shape.output_grad_bytes = shape.input_grad_bytes = hidden + condition_grad;
  shape.saved_bytes =
      l_.modulation.bytes(batch, compute) + 5 * hidden + joint + feed + 4 * rows * real;
  shape.kept_bytes = l_.attention.kept_bytes(batch, l_.tokens, compute, on_gpu);
  shape.passing_bytes = shape.saved_bytes + shape.kept_bytes - 2 * hidden - context;
  shape.keeps_input = true;
  shape.scores = l_.attention.scores(batch, l_.tokens, compute, on_gpu);
  if (shape.scores.matrices > 0) {
    const int64_t after = 4 * hidden + feed + 2 * rows * real;  // of the tape
    const int64_t held = l_.attention.forward_score_bytes(batch, l_.tokens, compute);
    shape.score_scratch_bytes = std::max<int64_t>(0, held - after - shape.kept_bytes);
  }
  // the output is made when the activation is gone
  shape.forward_scratch_bytes = std::max<int64_t>(0, feed - hidden);
  shape.reports_output_grad = false;
  // The moments of backward, in order: what lives, and what lives no more but is held where reports
  // are. The gradient that it returns is counted as made from the start (estimate/estimator.cpp).
  const int64_t grads = l_.modulation.grads_bytes(batch, compute),
                narrow = l_.modulation.narrow_bytes(batch, compute);
  const int64_t bias_grad = batch * l_.hidden * real, up_sums = batch * l_.up.out * real,
                qkv_sums = batch * l_.qkv.out * real;
  const int64_t norm =
      2 * norm_backward_scratch_bytes(batch, l_.tokens, l_.hidden, compute, on_gpu);
  int64_t largest = 0, largest_booked = 0, held = 0;
  auto moment = [&](int64_t live) {
    largest = std::max(largest, grads + live);
    largest_booked = std::max(largest_booked, grads + live + held);
  };
  auto reports = [&](const Projection& map, int64_t live) {
    map.set_moment(shape, grads + live, grads + live + held);
  };
  const auto scratch = [&](const Projection& map) {
    return token_sum_scratch_bytes(batch, l_.tokens, map.out, compute, on_gpu);
  };
  moment(feed + up_sums + hidden + bias_grad + std::max(feed + scratch(l_.up), norm));
  reports(l_.down, 2 * feed + up_sums + hidden + bias_grad);
  held += feed + hidden + bias_grad;
  moment(feed + up_sums);
  reports(l_.up, feed + up_sums);
  held += up_sums;
  moment(feed + hidden);
  held += feed;
  moment(hidden + norm);
  moment(hidden + context + hidden + bias_grad + norm);
  reports(l_.attention_out, hidden + context + hidden + bias_grad);
  held += hidden + bias_grad;
  if (shape.scores.matrices > 0)
    moment(hidden + context + qkv_sums +
           l_.attention.backward_score_bytes(batch, l_.tokens, compute));
  moment(hidden + context + 2 * joint + qkv_sums + scratch(l_.qkv));
  moment(hidden + joint + qkv_sums);
  reports(l_.qkv, hidden + joint + qkv_sums);
  held += qkv_sums;
  moment(2 * hidden + joint);
  held += joint;
  moment(2 * hidden + norm);
  reports(l_.modulation.map, hidden + narrow);
  moment(hidden + l_.modulation.backward_scratch_bytes(batch, compute) + condition_grad);
  shape.backward_scratch_bytes = std::max<int64_t>(0, largest - shape.input_grad_bytes);
  shape.booked_bytes = grads + narrow + held;
  shape.book_scratch_bytes =
      std::max<int64_t>(0, largest_booked - shape.booked_bytes - shape.input_grad_bytes);
  shape.forward_flops = l_.modulation.map.flops(batch) + l_.qkv.flops(rows) +
                        l_.attention_out.flops(rows) + l_.up.flops(rows) + l_.down.flops(rows) +
                        l_.attention.flops(batch, l_.tokens);
  return shape;
}

}  // namespace veil
