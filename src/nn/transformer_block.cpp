#include "nn/transformer_block.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

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

// [batch, 1, width] of [batch, tokens, width]. x itself if `places` are undefined.
Tensor chosen(const Tensor& x, const Tensor& places) {
  if (!places.defined()) return x;
  return x.view({-1, x.size(2)}).index_select(0, places).view({x.size(0), 1, x.size(2)});
}

// Its transpose: zeros but for the chosen tokens.
Tensor spread(const Tensor& x, const Tensor& places, int64_t tokens) {
  if (!places.defined()) return x;
  Tensor all = at::zeros({x.size(0), tokens, x.size(2)}, x.options());
  all.view({-1, x.size(2)}).index_copy_(0, places, x.view({-1, x.size(2)}));
  return all;
}

}  // namespace

TransformerBlock::TransformerBlock(TransformerLayers layers) : l_(std::move(layers)) {
  VEIL_CHECK(!l_.output_norm.exists() || (l_.feed_norm.exists() && !l_.feed_post_norm.exists()),
             "{}: a norm of the sum needs one of the first sum, and no other at the end", l_.name);
}

void TransformerBlock::set_trained(const std::vector<bool>& trained, bool below) {
  for (Projection* map : {&l_.qkv, &l_.attention_out, &l_.up, &l_.down}) map->set_trained(trained);
  trained_ = trained;
  below_ = below;
  makes_input_grad_ = below || l_.attention_norm.trains(trained);
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
      mask(tape.saved[15]),
      places(tape.saved[16]) {}

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
          mask,
          places};
}

Tensor TransformerBlock::places(const Flow& in) const {
  if (l_.goes_on == GoesOn::all) return {};
  const int64_t samples = in.hidden.size(0), tokens = in.hidden.size(1);
  const auto whole = in.hidden.options().dtype(at::kLong);
  Tensor places = at::arange(samples, whole).mul_(tokens);
  if (l_.goes_on == GoesOn::first) return places;
  if (l_.padding_id < 0) return places.add_(tokens - 1);
  VEIL_CHECK(in.ids.defined(), "{}: token ids do not come with the flow", l_.name);
  CategoryScope scope(Category::temporary);
  // all padding: position 0
  return places.add_(in.ids.ne(l_.padding_id).mul(at::arange(tokens, whole)).amax(1));
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
  s.places = places(in);
  if (l_.masks_padding) s.mask = padding_mask(in.ids, l_.padding_id, x.scalar_type());
  if (l_.attention_norm.exists()) s.normed = l_.attention_norm.forward(params, x, {}, s.first);
  s.qkv = l_.qkv.forward(params, s.normed.defined() ? s.normed : x);
  if (!l_.qkv.trains_weight) s.normed.reset();
  if (!l_.head_norms.exist()) {
    l_.attention.forward(s.qkv, /*turned=*/false, tape.kept, s.mask);
  } else if (tape.kept.empty()) {
    l_.attention.forward(prepared_heads(params, s.qkv), /*turned=*/true, tape.kept, s.mask);
  }
  Tensor out = l_.attention_out.forward(params, chosen(tape.kept[0], s.places));
  if (l_.attention_post_norm.exists()) {
    s.attended = out;
    out = l_.attention_post_norm.forward(params, s.attended, {}, s.attended_stats);
  }
  s.middle = out;
  if (l_.feed_norm.exists()) {  // it adds x to it
    s.middle_normed = l_.feed_norm.forward(params, chosen(x, s.places), s.middle, s.second);
  } else {
    s.middle.add_(chosen(x, s.places));
  }
  s.up = l_.up.forward(params, s.middle_normed.defined() ? s.middle_normed : s.middle);
  const bool is_residual = l_.output_norm.exists();
  if (!l_.up.trains_weight && !is_residual) s.middle_normed.reset();
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
    if (!l_.up.trains_weight) s.middle_normed.reset();
  }
  tape.saved = s.list();
  return {out, in.condition, in.ids};
}

// What a projection reports as its input: what is saved if its weight is trained; what adapters
// alone read is normalised again.
Tensor TransformerBlock::reported_input(const Params& params, const Projection& map,
                                        const Norm& norm, const Tensor& saved, const Tensor& x) {
  if (!norm.exists()) return x;
  return saved.defined() || !map.reads_input() ? saved : norm.again(params, x);
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
  const Tensor dy = grad.hidden;  // [batch, tokens that go on, hidden]
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
    Tensor active = like(dy, l_.feed), narrow = l_.down.adapter_grad(params, d_fed);
    l_.down.input_grad(params, d_fed, active, narrow);
    const Tensor d_up = at::empty_like(s.up);
    activation_backward(s.up, active, d_up, active);
    l_.down.report(params, sink, active, d_fed, narrow);
    active.reset();
    d_fed.reset();
    narrow = l_.up.adapter_grad(params, d_up);
    l_.up.report(params, sink,
                 reported_input(params, l_.up, l_.feed_norm, s.middle_normed, s.middle), d_up,
                 narrow);
    d_middle = at::empty_like(dy);
    l_.up.input_grad(params, d_up, d_middle, narrow);
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
    Tensor narrow = l_.attention_out.adapter_grad(params, d_out);
    l_.attention_out.report(params, sink, chosen(tape.kept[0], s.places), d_out, narrow);
    Tensor d_attended = like(dy, l_.attention.width());
    l_.attention_out.input_grad(params, d_out, d_attended, narrow);
    d_out.reset();
    narrow.reset();
    d_attended = spread(d_attended, s.places, tape.input.size(1));
    const Tensor heads = prepared_heads(params, s.qkv);
    d_qkv = l_.attention.backward(d_attended, heads, tape.kept, s.mask);
  }
  if (l_.head_norms.exist()) l_.head_norms.backward(params, l_.attention, d_qkv, s.qkv, sink);
  Tensor narrow = l_.qkv.adapter_grad(params, d_qkv);
  l_.qkv.report(params, sink,
                reported_input(params, l_.qkv, l_.attention_norm, s.normed, tape.input), d_qkv,
                narrow);
  if (!makes_input_grad_) return {};
  Tensor dx = at::empty_like(tape.input);
  l_.qkv.input_grad(params, d_qkv, dx, narrow);
  d_qkv.reset();
  narrow.reset();
  CategoryScope scope(Category::temporary);
  d_middle = spread(d_middle, s.places, tape.input.size(1));
  if (l_.attention_norm.exists()) {
    l_.attention_norm.backward(params, dx, tape.input, s.first, /*residual=*/d_middle, sink);
  } else {
    dx.add_(d_middle);
  }
  return {dx};
}

// backward() above, line by line.
void TransformerBlock::add_moments(BlockShape& shape, int64_t batch, DType compute,
                                   bool on_gpu) const {
  const int64_t rows = batch * l_.tokens, row = dtype_bytes(compute) * rows;
  const int64_t hidden = row * l_.hidden, joint = row * l_.qkv.out;
  const bool chooses = l_.goes_on != GoesOn::all;
  const int64_t behind = l_.tokens_behind(), row_behind = dtype_bytes(compute) * batch * behind,
                hidden_behind = row_behind * l_.hidden;
  const int64_t mask = on_gpu ? 0 : l_.attention.window_bytes(l_.tokens, compute);
  constexpr Moments::Id kNone = Moments::kNone;
  Moments moments;
  const auto narrow_of = [&](const Projection& map, int64_t tokens) {
    return map.adapters.count() > 0 ? moments.make(map.adapter_bytes(batch * tokens, compute))
                                    : kNone;
  };
  const auto remade = [&](const Projection& map, const Norm& norm, int64_t tokens) {
    if (!norm.exists() || map.trains_weight || !map.reads_input()) return kNone;
    const Moments::Id normed = moments.make(dtype_bytes(compute) * batch * tokens * l_.hidden);
    moments.pass(norm.statistics_bytes(batch * tokens, compute));
    return normed;
  };
  const auto report = [&](const Projection& map, int64_t tokens, Moments::Id a, Moments::Id g,
                          Moments::Id narrow) {
    map.report_moments(moments, shape, batch, tokens, compute, on_gpu, a, g, narrow);
  };
  const auto back_through = [&](const Norm& norm, int64_t tokens) {
    if (norm.exists()) norm.backward_moments(moments, shape, batch, tokens, compute, on_gpu);
  };

  back_through(l_.output_norm, behind);
  const Moments::Id d_fed = l_.feed_post_norm.exists() ? moments.make(hidden_behind) : kNone;
  back_through(l_.feed_post_norm, behind);
  const Moments::Id active = moments.make(row_behind * l_.feed);
  Moments::Id narrow = narrow_of(l_.down, behind);
  const Moments::Id d_up = moments.make(row_behind * l_.up.out);
  report(l_.down, behind, active, d_fed, narrow);
  moments.drop(active);
  moments.drop(d_fed);
  // made before the one that it replaces is let go of
  const Moments::Id next = narrow_of(l_.up, behind);
  moments.drop(narrow);
  narrow = next;
  Moments::Id normed = remade(l_.up, l_.feed_norm, behind);
  report(l_.up, behind, normed, d_up, narrow);
  moments.drop(normed);
  const Moments::Id d_middle = moments.make(hidden_behind);
  moments.drop(d_up);
  moments.drop(narrow);
  back_through(l_.feed_norm, behind);

  const bool attended_normed = l_.attention_post_norm.exists();
  const Moments::Id d_out = attended_normed ? moments.make(hidden_behind) : d_middle;
  back_through(l_.attention_post_norm, behind);
  narrow = narrow_of(l_.attention_out, behind);
  const Moments::Id attended = chooses ? moments.make(row_behind * l_.attention.width()) : kNone;
  report(l_.attention_out, behind, attended, d_out, narrow);
  moments.drop(attended);
  Moments::Id d_attended = moments.make(row_behind * l_.attention.width());
  if (attended_normed) moments.drop(d_out);
  moments.drop(narrow);
  if (chooses) {
    const Moments::Id all = moments.make(row * l_.attention.width());
    moments.drop(d_attended);
    d_attended = all;
  }
  Moments::Id heads = kNone;
  if (l_.head_norms.exist()) {
    heads = moments.make(joint);
    moments.pass(l_.head_norms.forward_scratch_bytes(l_.attention, rows, compute));
  }
  if (shape.scores.matrices > 0)
    moments.pass(l_.attention.backward_score_bytes(batch, l_.tokens, compute));
  moments.pass(joint + std::max(joint, mask));  // the library's gradients, and those joined
  moments.drop(d_attended);
  moments.drop(heads);
  const Moments::Id d_qkv = moments.make(joint);
  if (l_.head_norms.exist()) {
    moments.pass(
        l_.head_norms.backward_scratch_bytes(l_.attention, batch, l_.tokens, compute, on_gpu));
    for (const Norm* norm : {&l_.head_norms.query, &l_.head_norms.key}) {
      const Moments::Id sums = moments.make(batch * norm->width * dtype_bytes(sum_dtype(compute)));
      moments.report(shape, norm->weight, {sums});
      moments.drop(sums);
    }
  }
  narrow = narrow_of(l_.qkv, l_.tokens);
  normed = remade(l_.qkv, l_.attention_norm, l_.tokens);
  report(l_.qkv, l_.tokens, normed, d_qkv, narrow);
  moments.drop(normed);
  if (makes_input_grad_) {
    moments.make(hidden);
    moments.drop(d_qkv);
    moments.drop(narrow);
    if (chooses) {
      moments.make(hidden);
      moments.drop(d_middle);
    }
    back_through(l_.attention_norm, l_.tokens);
  }
  moments.finish(shape);
}

BlockShape TransformerBlock::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens, row = dtype_bytes(compute) * rows;
  const int64_t before_hidden = row * l_.hidden, joint = row * l_.qkv.out;
  // Of the tokens that go on.
  const int64_t tokens_behind = l_.tokens_behind(), rows_behind = batch * tokens_behind,
                row_behind = dtype_bytes(compute) * rows_behind, hidden = row_behind * l_.hidden,
                feed = row_behind * l_.feed, up = row_behind * l_.up.out;
  BlockShape shape;
  shape.name = l_.name;
  const auto add_norm = [&](const Norm& norm) {
    if (norm.exists()) norm.add_shape(shape, batch);
  };
  add_norm(l_.attention_norm);
  l_.qkv.add_shape(shape, batch, l_.tokens);
  l_.head_norms.add_shape(shape, batch);
  l_.attention_out.add_shape(shape, batch, tokens_behind);
  add_norm(l_.attention_post_norm);
  add_norm(l_.feed_norm);
  l_.up.add_shape(shape, batch, tokens_behind);
  l_.down.add_shape(shape, batch, tokens_behind);
  add_norm(last_norm());
  shape.output_bytes = hidden;
  shape.input_grad_bytes = below_ ? before_hidden : 0;
  // what adapters alone read is not saved
  const int64_t normed = l_.attention_norm.exists() && !l_.qkv.trains_weight ? before_hidden : 0,
                middle_normed = l_.feed_norm.exists() && !l_.up.trains_weight ? hidden : 0;
  // the middle residual, and one tensor and its statistics for each norm
  const int64_t places = l_.goes_on == GoesOn::all ? 0 : batch * dtype_bytes(at::kLong);
  shape.saved_bytes = hidden + joint + up + (l_.masks_padding ? row : 0) + places;
  if (l_.attention_norm.exists())
    shape.saved_bytes += before_hidden + l_.attention_norm.statistics_bytes(rows, compute);
  for (const Norm* norm : {&l_.feed_norm, &l_.attention_post_norm, &last_norm()}) {
    if (norm->exists()) shape.saved_bytes += hidden + norm->statistics_bytes(rows_behind, compute);
  }
  shape.kept_bytes = l_.attention.kept_bytes(batch, l_.tokens, compute, on_gpu, l_.masks_padding);
  shape.keeps_input = true;
  shape.recompute_skips_output = !ends_with_norm();
  shape.saved_bytes -= normed + middle_normed;
  int64_t reported = 0;
  if (l_.attention_norm.exists() && l_.qkv.trains_weight) reported += before_hidden;
  if (l_.goes_on == GoesOn::all && l_.attention_out.reads_input())
    reported += row * l_.attention.width();
  if (l_.feed_norm.exists() ? l_.up.trains_weight : l_.up.reads_input()) reported += hidden;
  shape.passing_bytes = shape.saved_bytes + shape.kept_bytes - reported;
  shape.reports_output_grad = !l_.feed_post_norm.exists() && l_.down.reads_input();
  // The activation lives until `down` is done; a norm behind it makes its result afterwards. What
  // the last norm adds is let go of at the end.
  const int64_t last_stats =
                    ends_with_norm() ? last_norm().statistics_bytes(rows_behind, compute) : 0,
                residual = l_.output_norm.exists() ? middle_normed : 0,
                at_up = middle_normed + l_.up.adapter_bytes(rows_behind, compute),
                after_up = hidden + (ends_with_norm() ? hidden + last_stats : 0),
                at_down = feed + l_.down.adapter_bytes(rows_behind, compute) -
                          (ends_with_norm() ? hidden + last_stats : 0) + residual;
  // What goes on is copied: of attention's result, when the norms behind it and `up` are still to
  // be made, and of the residual, when `up` is.
  int64_t at_choice = 0;
  if (places > 0) {
    const auto normed_bytes = [&](const Norm& norm) {
      return norm.exists() ? hidden + norm.statistics_bytes(rows_behind, compute) : 0;
    };
    const int64_t attended =
        row_behind * l_.attention.width() + l_.attention_out.adapter_bytes(rows_behind, compute);
    at_choice = std::max(attended + middle_normed - normed_bytes(l_.attention_post_norm) -
                             normed_bytes(l_.feed_norm),
                         hidden + middle_normed) -
                up;
    const int64_t behind = hidden - middle_normed + up + normed_bytes(l_.attention_post_norm) +
                           normed_bytes(l_.feed_norm) + normed_bytes(last_norm());
    // What adapters alone read, and what they make of it: nothing behind is there yet.
    shape.early_scratch_bytes = normed + l_.qkv.adapter_bytes(rows, compute) - behind;
    // Heads that are normalised, while attention makes what it keeps; or a window's mask.
    int64_t at_attention = on_gpu ? 0 : l_.attention.window_bytes(l_.tokens, compute);
    if (l_.head_norms.exist())
      at_attention += joint + std::max<int64_t>(0, l_.head_norms.forward_scratch_bytes(
                                                       l_.attention, rows, compute) -
                                                       shape.kept_bytes);
    shape.score_scratch_bytes = std::max<int64_t>(0, at_attention - behind);
  }
  shape.recompute_scratch_bytes = std::max(at_up, at_choice);
  shape.scores = l_.attention.scores(batch, l_.tokens, compute, on_gpu, l_.masks_padding);
  if (shape.scores.matrices > 0) {
    const Norm& norm = l_.attention_norm;
    const int64_t before =
        joint * (l_.head_norms.exist() ? 2 : 1) + (l_.masks_padding ? row : 0) + places +
        (norm.exists() ? before_hidden - normed + norm.statistics_bytes(rows, compute) : 0);
    const int64_t held = l_.attention.forward_score_bytes(batch, l_.tokens, compute);
    shape.score_scratch_bytes =
        std::max(shape.score_scratch_bytes, before + held - shape.saved_bytes - shape.kept_bytes);
  }
  shape.forward_scratch_bytes =
      std::max({int64_t{0}, shape.recompute_scratch_bytes - after_up, at_down, residual});
  std::erase_if(shape.reports, [&](const Report& report) {
    return !trained_.empty() && !trained_[static_cast<size_t>(report.param)];
  });
  add_moments(shape, batch, compute, on_gpu);
  shape.forward_flops = l_.qkv.flops(rows) + l_.attention.flops(batch, l_.tokens) +
                        l_.attention_out.flops(rows_behind) + l_.up.flops(rows_behind) +
                        l_.down.flops(rows_behind);
  return shape;
}

}  // namespace veil
