#include "nn/transformer_block.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/activation.h"
#include "tensor/category.h"

namespace veil {
namespace {

Tensor like(const Tensor& x, int64_t last) {
  std::vector<int64_t> dims = x.sizes().vec();
  dims.back() = last;
  return empty_tensor(dims, x.scalar_type(), x.device());
}

// Backward's bytes, followed from moment to moment: what lives, and what lives no more but is held
// where reports are. The gradient that backward returns is among what lives once it is made.
class BackwardBytes {
 public:
  explicit BackwardBytes(BlockShape& shape, int64_t batch, DType compute)
      : shape_(shape), sample_bytes_(batch * dtype_bytes(sum_dtype(compute))) {}

  void make(int64_t bytes) { peak(0), live_ += bytes, peak(0); }
  void drop(int64_t bytes) { live_ -= bytes; }
  void drop_reported(int64_t bytes) { drop(bytes), held_ += bytes; }
  // so much more for a moment
  void peak(int64_t bytes) {
    largest_ = std::max(largest_, live_ + bytes);
    largest_held_ = std::max(largest_held_, live_ + held_ + bytes);
  }
  // The parameter is reported; a direct report is made of sums, which are held.
  void report(ParamId id) {
    for (Report& report : shape_.reports) {
      if (id < 0 || report.param != id) continue;
      const int64_t sums = report.by == Report::By::direct ? report.numel * sample_bytes_ : 0;
      held_ += sums;
      report.live_bytes = live_ + sums;
      report.held_bytes = live_ + held_;
    }
  }
  void report(const Norm& norm, int64_t scratch) {
    if (!norm.exists()) return;
    peak(scratch);
    report(norm.weight);
    report(norm.bias);
  }
  void report(const Projection& map, int64_t scratch) {
    peak(scratch);
    report(map.weight);
    report(map.bias);
  }
  // `returned`: bytes of the gradient that backward returns, counted as made from the start
  // (estimate/estimator.cpp).
  void finish(int64_t returned) {
    shape_.backward_scratch_bytes = std::max<int64_t>(0, largest_ - returned);
    shape_.booked_bytes = held_;
    shape_.book_scratch_bytes = std::max<int64_t>(0, largest_held_ - held_ - returned);
  }

 private:
  BlockShape& shape_;
  int64_t sample_bytes_;
  int64_t live_ = 0, held_ = 0, largest_ = 0, largest_held_ = 0;
};

}  // namespace

TransformerBlock::TransformerBlock(TransformerLayers layers) : l_(std::move(layers)) {
  VEIL_CHECK(!l_.output_norm.exists() || (l_.feed_norm.exists() && !l_.feed_post_norm.exists()),
             "{}: a norm of the sum needs one of the first sum, and no other at the end", l_.name);
}

TransformerBlock::Saved::Saved(const Tape& tape)
    : normed(tape.saved[0]),
      qkv(tape.saved[1]),
      middle(tape.saved[2]),
      middle_normed(tape.saved[3]),
      up(tape.saved[4]),
      attended(tape.saved[5]),
      fed(tape.saved[6]),
      first{tape.saved[7], tape.saved[8]},
      second{tape.saved[9], tape.saved[10]},
      attended_stats{tape.saved[11], tape.saved[12]},
      fed_stats{tape.saved[13], tape.saved[14]},
      mask(tape.saved[15]) {}

std::vector<Tensor> TransformerBlock::Saved::list() const {
  return {normed,
          qkv,
          middle,
          middle_normed,
          up,
          attended,
          fed,
          first.rstd,
          first.mean,
          second.rstd,
          second.mean,
          attended_stats.rstd,
          attended_stats.mean,
          fed_stats.rstd,
          fed_stats.mean,
          mask};
}

Tensor TransformerBlock::activated(const Tensor& up) const {
  CategoryScope scope(Category::temporary);
  Tensor out = like(up, l_.feed);
  switch (l_.activation) {
    case Activation::swiglu:
      swiglu(up, out);
      break;
    case Activation::geglu:
      geglu(up, out);
      break;
    case Activation::gelu:
      gelu(up, out);
      break;
    case Activation::gelu_erf:
      gelu_erf(up, out);
      break;
  }
  return out;
}

void TransformerBlock::activation_backward(const Tensor& up, const Tensor& grad, const Tensor& d_up,
                                           const Tensor& out) const {
  switch (l_.activation) {
    case Activation::swiglu:
      return swiglu_backward(up, grad, d_up, out);
    case Activation::geglu:
      return geglu_backward(up, grad, d_up, out);
    case Activation::gelu:
      return gelu_backward(up, grad, d_up, out);
    case Activation::gelu_erf:
      return gelu_erf_backward(up, grad, d_up, out);
  }
}

Tensor TransformerBlock::prepared_heads(const Params& params, const Tensor& qkv) const {
  if (!l_.head_norms.exist()) return qkv;
  CategoryScope scope(Category::temporary);
  const Tensor heads = l_.head_norms.forward(params, l_.attention, qkv);
  l_.attention.turn(heads);
  return heads;
}

TransformerBlock::Saved TransformerBlock::run(const Params& params, const Flow& in,
                                              Tape& tape) const {
  const Tensor& x = in.hidden;
  Saved s;
  if (l_.masks_padding) s.mask = padding_mask(in.ids, l_.padding_id, x.scalar_type());
  if (l_.attention_norm.exists()) s.normed = l_.attention_norm.forward(params, x, {}, s.first);
  s.qkv = l_.qkv.forward(params, s.normed.defined() ? s.normed : x);
  if (!l_.head_norms.exist()) {
    l_.attention.forward(s.qkv, /*turned=*/false, tape.kept, s.mask);
  } else if (tape.kept.empty()) {
    l_.attention.forward(prepared_heads(params, s.qkv), /*turned=*/true, tape.kept, s.mask);
  }
  Tensor out = l_.attention_out.forward(params, tape.kept[0]);
  if (l_.attention_post_norm.exists()) {
    s.attended = out;
    out = l_.attention_post_norm.forward(params, s.attended, {}, s.attended_stats);
  }
  s.middle = out;
  if (l_.feed_norm.exists()) {  // it adds x to it
    s.middle_normed = l_.feed_norm.forward(params, x, s.middle, s.second);
  } else {
    s.middle.add_(x);
  }
  s.up = l_.up.forward(params, s.middle_normed.defined() ? s.middle_normed : s.middle);
  tape.input = x;
  return s;
}

Flow TransformerBlock::forward(const Params& params, const Flow& in, Tape& tape) const {
  Saved s = run(params, in, tape);
  Tensor out;
  if (!ends_with_norm()) {
    out = l_.down.forward_add(params, activated(s.up), s.middle);
  } else {
    s.fed = l_.down.forward(params, activated(s.up));
    const bool of_sum = l_.output_norm.exists();
    // the sum's norm adds the residual itself, and leaves the sum in `fed`
    out = of_sum ? l_.output_norm.forward(params, s.middle_normed, s.fed, s.fed_stats)
                 : l_.feed_post_norm.forward(params, s.fed, {}, s.fed_stats);
    if (!of_sum) out.add_(s.middle);
  }
  tape.saved = s.list();
  return {out, in.condition, in.ids};
}

Flow TransformerBlock::recompute(const Params& params, const Flow& in, Tape& tape) const {
  // what the last norm reads is made by nearly all of forward
  if (ends_with_norm()) return forward(params, in, tape);
  tape.saved = run(params, in, tape).list();
  return {};
}

Flow TransformerBlock::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                                bool) const {
  const Saved s(tape);
  const Tensor dy = grad.hidden;  // [batch, tokens, hidden]
  const bool of_sum = l_.output_norm.exists();
  if (of_sum) l_.output_norm.backward(params, dy, s.fed, s.fed_stats, {}, sink);
  Tensor d_middle;
  {
    CategoryScope scope(Category::temporary);
    Tensor d_fed = dy;
    if (l_.feed_post_norm.exists()) {
      d_fed = at::empty_like(dy);
      l_.feed_post_norm.backward_into(params, dy, s.fed, s.fed_stats, {}, d_fed, sink);
    }
    // first the gradient of the activation, then the activation itself
    Tensor active = like(dy, l_.feed);
    l_.down.input_grad(params, d_fed, active);
    const Tensor d_up = at::empty_like(s.up);
    activation_backward(s.up, active, d_up, active);
    l_.down.report(sink, active, d_fed);
    active.reset();
    d_fed.reset();
    l_.up.report(sink, s.middle_normed.defined() ? s.middle_normed : s.middle, d_up);
    d_middle = at::empty_like(dy);
    l_.up.input_grad(params, d_up, d_middle);
  }
  if (of_sum || !l_.feed_norm.exists()) d_middle.add_(dy);
  if (l_.feed_norm.exists())
    l_.feed_norm.backward(params, d_middle, s.middle, s.second, of_sum ? Tensor() : dy, sink);
  Tensor d_qkv;
  {
    CategoryScope scope(Category::temporary);
    Tensor d_out = d_middle;
    if (l_.attention_post_norm.exists()) {
      d_out = at::empty_like(dy);
      l_.attention_post_norm.backward_into(params, d_middle, s.attended, s.attended_stats, {},
                                           d_out, sink);
    }
    l_.attention_out.report(sink, tape.kept[0], d_out);
    const Tensor d_attended = like(dy, l_.attention.width());
    l_.attention_out.input_grad(params, d_out, d_attended);
    d_out.reset();
    const Tensor heads = prepared_heads(params, s.qkv);
    d_qkv = l_.attention.backward(d_attended, heads, tape.kept, s.mask);
  }
  if (l_.head_norms.exist()) l_.head_norms.backward(params, l_.attention, d_qkv, s.qkv, sink);
  l_.qkv.report(sink, s.normed.defined() ? s.normed : tape.input, d_qkv);
  Tensor dx = at::empty_like(dy);
  l_.qkv.input_grad(params, d_qkv, dx);
  d_qkv.reset();
  if (l_.attention_norm.exists()) {
    l_.attention_norm.backward(params, dx, tape.input, s.first, /*residual=*/d_middle, sink);
  } else {
    dx.add_(d_middle);
  }
  return {dx};
}

BlockShape TransformerBlock::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens, row = dtype_bytes(compute) * rows;
  const int64_t hidden = row * l_.hidden, feed = row * l_.feed, up = row * l_.up.out,
                joint = row * l_.qkv.out, attended = row * l_.attention.width();
  const Norm* const norms[] = {&l_.attention_norm, &l_.feed_norm, &l_.attention_post_norm,
                               &last_norm()};
  BlockShape shape;
  shape.name = l_.name;
  const auto add_norm = [&](const Norm& norm) {
    if (norm.exists()) norm.add_shape(shape, batch);
  };
  add_norm(l_.attention_norm);
  l_.qkv.add_shape(shape, batch, l_.tokens);
  l_.head_norms.add_shape(shape, batch);
  l_.attention_out.add_shape(shape, batch, l_.tokens);
  add_norm(l_.attention_post_norm);
  add_norm(l_.feed_norm);
  l_.up.add_shape(shape, batch, l_.tokens);
  l_.down.add_shape(shape, batch, l_.tokens);
  add_norm(last_norm());
  shape.output_bytes = hidden;
  shape.input_grad_bytes = hidden;
  // the middle residual, and one tensor and its statistics for each norm
  shape.saved_bytes = hidden + joint + up + (l_.masks_padding ? row : 0);
  for (const Norm* norm : norms) {
    if (norm->exists()) shape.saved_bytes += hidden + norm->statistics_bytes(rows, compute);
  }
  shape.kept_bytes = l_.attention.kept_bytes(batch, l_.tokens, compute, on_gpu, l_.masks_padding);
  shape.keeps_input = true;
  shape.recompute_skips_output = !ends_with_norm();
  const int64_t mask = on_gpu ? 0 : l_.attention.window_bytes(l_.tokens, compute);
  // The activation lives until `down` is done; a norm behind it makes its result afterwards.
  shape.forward_scratch_bytes =
      ends_with_norm()
          ? std::max<int64_t>(0, feed - hidden - last_norm().statistics_bytes(rows, compute))
          : feed;

  // backward() above, line by line
  const auto norm_scratch = [&](const Norm& norm) {
    return norm.exists() ? norm.backward_scratch_bytes(batch, l_.tokens, compute, on_gpu) : 0;
  };
  const auto bias_scratch = [&](const Projection& map) {
    return map.report_scratch_bytes(batch, l_.tokens, compute, on_gpu);
  };
  BackwardBytes bytes(shape, batch, compute);
  bytes.report(l_.output_norm, norm_scratch(l_.output_norm));
  const bool fed_normed = l_.feed_post_norm.exists();
  if (fed_normed) bytes.make(hidden);
  bytes.report(l_.feed_post_norm, norm_scratch(l_.feed_post_norm));
  bytes.make(feed);
  bytes.make(up);
  bytes.report(l_.down, bias_scratch(l_.down));
  bytes.drop_reported(feed);
  if (fed_normed) bytes.drop_reported(hidden);
  bytes.report(l_.up, bias_scratch(l_.up));
  bytes.make(hidden);  // d_middle
  bytes.drop_reported(up);
  bytes.report(l_.feed_norm, norm_scratch(l_.feed_norm));
  const bool attended_normed = l_.attention_post_norm.exists();
  if (attended_normed) bytes.make(hidden);
  bytes.report(l_.attention_post_norm, norm_scratch(l_.attention_post_norm));
  bytes.report(l_.attention_out, bias_scratch(l_.attention_out));
  bytes.make(attended);
  if (attended_normed) bytes.drop_reported(hidden);
  if (l_.head_norms.exist()) {
    bytes.make(joint);
    bytes.peak(l_.head_norms.forward_scratch_bytes(l_.attention, rows, compute));
  }
  bytes.peak(joint + std::max(joint, mask));  // the library's gradients, and those joined
  bytes.drop(attended);
  if (l_.head_norms.exist()) bytes.drop(joint);
  bytes.make(joint);  // d_qkv
  if (l_.head_norms.exist()) {
    bytes.peak(
        l_.head_norms.backward_scratch_bytes(l_.attention, batch, l_.tokens, compute, on_gpu));
    bytes.report(l_.head_norms.query, 0);
    bytes.report(l_.head_norms.key, 0);
  }
  bytes.report(l_.qkv, bias_scratch(l_.qkv));
  bytes.make(hidden);  // what is returned
  bytes.drop_reported(joint);
  bytes.report(l_.attention_norm, norm_scratch(l_.attention_norm));
  attended_normed ? bytes.drop(hidden) : bytes.drop_reported(hidden);  // d_middle
  bytes.finish(/*returned=*/hidden);
  shape.reports_output_grad = !fed_normed;
  shape.forward_flops = l_.qkv.flops(rows) + l_.attention_out.flops(rows) + l_.up.flops(rows) +
                        l_.down.flops(rows) + l_.attention.flops(batch, l_.tokens);
  return shape;
}

}  // namespace veil
