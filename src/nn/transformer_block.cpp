#include "nn/transformer_block.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/activation.h"
#include "tensor/category.h"

namespace veil {
namespace {

Tensor like(const Tensor& x, int64_t last) {
  std::vector<int64_t> dims = x.sizes().vec();
  dims.back() = last;
  return empty_tensor(dims, x.scalar_type(), x.device());
}

}  // namespace

TransformerBlock::Saved::Saved(const Tape& tape)
    : normed(tape.saved[0]),
      qkv(tape.saved[1]),
      middle(tape.saved[2]),
      middle_normed(tape.saved[3]),
      up(tape.saved[4]),
      first{tape.saved[5], tape.saved[6]},
      second{tape.saved[7], tape.saved[8]} {}

std::vector<Tensor> TransformerBlock::Saved::list() const {
  return {normed, qkv, middle, middle_normed, up, first.rstd, first.mean, second.rstd, second.mean};
}

Tensor TransformerBlock::activated(const Tensor& up) const {
  CategoryScope scope(Category::temporary);
  Tensor out = like(up, l_.feed);
  if (l_.activation == Activation::swiglu) {
    swiglu(up, out);
  } else {
    gelu(up, out);
  }
  return out;
}

Tensor TransformerBlock::run(const Params& params, const Tensor& x, Tape& tape) const {
  Saved saved;
  saved.normed = l_.attention_norm.forward(params, x, {}, saved.first);
  saved.qkv = l_.qkv.forward(params, saved.normed);
  const Tensor attended = l_.attention.forward(saved.qkv, /*turned=*/false, tape.kept);
  saved.middle = l_.attention_out.forward(params, attended);  // the norm adds x to it
  saved.middle_normed = l_.feed_norm.forward(params, x, saved.middle, saved.second);
  saved.up = l_.up.forward(params, saved.middle_normed);
  tape.input = x;
  tape.saved = saved.list();
  return saved.up;
}

Flow TransformerBlock::forward(const Params& params, const Flow& in, Tape& tape) const {
  const Tensor up = run(params, in.hidden, tape);
  return {l_.down.forward_add(params, activated(up), tape.saved[2])};
}

Flow TransformerBlock::recompute(const Params& params, const Flow& in, Tape& tape) const {
  run(params, in.hidden, tape);
  return {};
}

Flow TransformerBlock::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                                bool) const {
  const Saved s(tape);
  const Tensor dy = grad.hidden;  // [batch, tokens, hidden]
  Tensor d_middle;
  {
    CategoryScope scope(Category::temporary);
    // first the gradient of the activation, then the activation itself
    Tensor active = like(dy, l_.feed);
    l_.down.input_grad(params, dy, active);
    Tensor d_up = at::empty_like(s.up);
    if (l_.activation == Activation::swiglu) {
      swiglu_backward(s.up, active, d_up, active);
    } else {
      gelu_backward(s.up, active, d_up, active);
    }
    l_.down.report(sink, active, dy);
    active.reset();
    l_.up.report(sink, s.middle_normed, d_up);
    d_middle = at::empty_like(dy);
    l_.up.input_grad(params, d_up, d_middle);
  }
  l_.feed_norm.backward(params, d_middle, s.middle, s.second, /*residual=*/dy, sink);
  Tensor d_qkv;
  {
    CategoryScope scope(Category::temporary);
    l_.attention_out.report(sink, tape.kept[0], d_middle);
    const Tensor d_attended = like(dy, l_.attention.width());
    l_.attention_out.input_grad(params, d_middle, d_attended);
    d_qkv = l_.attention.backward(d_attended, s.qkv, tape.kept);
  }
  l_.qkv.report(sink, s.normed, d_qkv);
  Tensor dx = at::empty_like(dy);
  l_.qkv.input_grad(params, d_qkv, dx);
  d_qkv.reset();
  l_.attention_norm.backward(params, dx, tape.input, s.first, /*residual=*/d_middle, sink);
  return {dx};
}

// What lives of backward's temporaries at each report, in its order; answers what the reports hold
// in all beside the tape and dy.
int64_t TransformerBlock::add_moments(BlockShape& shape, int64_t batch, int64_t hidden,
                                      int64_t feed, int64_t up, int64_t joint,
                                      int64_t real_bytes) const {
  int64_t per_sample = 0;  // held so far
  auto moment = [&](ParamId id, int64_t live, int64_t held) {
    for (Report& report : shape.reports) {
      if (id < 0 || report.param != id) continue;
      const int64_t own = report.by == Report::By::direct ? batch * report.numel * real_bytes : 0;
      per_sample += own;
      report.live_bytes = live + own;
      report.held_bytes = held + per_sample;
    }
  };
  moment(l_.down.weight, feed + up, feed + up);
  moment(l_.down.bias, feed + up, feed + up);
  moment(l_.up.weight, up, feed + up);
  moment(l_.up.bias, up, feed + up);
  const int64_t half = feed + up + hidden;
  for (ParamId id :
       {l_.feed_norm.weight, l_.feed_norm.bias, l_.attention_out.weight, l_.attention_out.bias})
    moment(id, hidden, half);
  shape.book_scratch_bytes = per_sample;  // held when attention's backward runs
  for (ParamId id : {l_.qkv.weight, l_.qkv.bias}) moment(id, hidden + joint, half + joint);
  for (ParamId id : {l_.attention_norm.weight, l_.attention_norm.bias})
    moment(id, 2 * hidden, half + joint + hidden);
  return half + joint + per_sample;
}

BlockShape TransformerBlock::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens, row = dtype_bytes(compute) * rows;
  const int64_t hidden = row * l_.hidden, feed = row * l_.feed, up = row * l_.up.out,
                joint = row * l_.qkv.out, attended = row * l_.attention.width();
  BlockShape shape;
  shape.name = l_.name;
  l_.attention_norm.add_shape(shape, batch);
  l_.qkv.add_shape(shape, batch, l_.tokens);
  l_.attention_out.add_shape(shape, batch, l_.tokens);
  l_.feed_norm.add_shape(shape, batch);
  l_.up.add_shape(shape, batch, l_.tokens);
  l_.down.add_shape(shape, batch, l_.tokens);
  shape.output_bytes = hidden;
  shape.input_grad_bytes = hidden;
  shape.saved_bytes = 3 * hidden + joint + up + l_.attention_norm.statistics_bytes(rows, compute) +
                      l_.feed_norm.statistics_bytes(rows, compute);
  shape.kept_bytes = l_.attention.kept_bytes(batch, l_.tokens, compute, on_gpu);
  shape.keeps_input = true;
  shape.recompute_skips_output = true;
  shape.forward_scratch_bytes = feed;
  // The moments of backward, in order; the gradient that it returns is counted as made from the
  // start (estimate/estimator.cpp).
  const int64_t norm = l_.feed_norm.backward_scratch_bytes(batch, l_.tokens, compute, on_gpu);
  const int64_t moments[] = {
      feed + up + l_.down.report_scratch_bytes(batch, l_.tokens, compute, on_gpu),
      up + l_.up.report_scratch_bytes(batch, l_.tokens, compute, on_gpu),
      up + hidden,
      hidden + norm,
      hidden + attended + 2 * joint,
      hidden + joint + l_.qkv.report_scratch_bytes(batch, l_.tokens, compute, on_gpu),
      2 * hidden + joint,
      2 * hidden + norm,
  };
  shape.backward_scratch_bytes =
      std::max<int64_t>(0, *std::max_element(std::begin(moments), std::end(moments)) - hidden);
  // Where reports are held, attention's backward is the moment that takes most on top of them and
  // of the gradient that is returned.
  shape.booked_bytes =
      add_moments(shape, batch, hidden, feed, up, joint, dtype_bytes(sum_dtype(compute)));
  const int64_t in_attention = feed + up + hidden + attended + 2 * joint + shape.book_scratch_bytes;
  shape.book_scratch_bytes = std::max<int64_t>(0, in_attention - shape.booked_bytes - hidden);
  shape.forward_flops = l_.qkv.flops(rows) + l_.attention_out.flops(rows) + l_.up.flops(rows) +
                        l_.down.flops(rows) + l_.attention.flops(batch, l_.tokens);
  return shape;
}

}  // namespace veil
