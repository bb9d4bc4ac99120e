// The body of a step: forward, and backward in as many passes as clipping takes.
#include <algorithm>
#include <utility>

#include "nn/summed_sink.h"
#include "privacy/clipped_sink.h"
#include "privacy/keep_sink.h"
#include "privacy/norm_sink.h"
#include "step/builder.h"

namespace veil {

std::vector<Visit> Builder::visits(const std::vector<int>& order) const {
  std::vector<Visit> found;
  // index of the visit that ended at the block before
  std::vector<int> open(static_cast<size_t>(units()), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    for (int u : schedule_.layout.units_of_block[order[i]]) {
      if (access(u) != ParamAccess::per_use) continue;
      const bool goes_on = i > 0 && open[u] >= 0 && found[open[u]].last == order[i - 1];
      if (goes_on) {
        found[open[u]].last = order[i];
      } else {
        open[u] = static_cast<int>(found.size());
        found.push_back({u, order[i], order[i]});
      }
    }
  }
  return found;
}

std::vector<Visit> Builder::forward_visits() const {
  std::vector<int> order;
  for (int b = 0; b <= blocks(); ++b) order.push_back(b);
  return visits(order);
}

std::vector<Visit> Builder::backward_visits() const {
  std::vector<int> order;
  for (int b = blocks(); runs_backward(b); --b) order.push_back(b);
  return visits(order);
}

void Builder::build_body() {
  begin(Part::body);
  begin_body();
  build_forward(forward_visits());
  build_gradients(backward_visits());
}

void Builder::build_sums() {
  begin(Part::sums);
  for (int u : trained_units_backward()) {
    if (schedule_.kept_numel[static_cast<size_t>(u)] > 0)
      emit({.kind = OpKind::combine, .unit = u, .use = GradUse::clip, .note = "clip"});
  }
}

void Builder::begin_body() {
  if (options_.micro_batches > 1 || options_.varying) emit({.kind = OpKind::load});
  held_.assign(static_cast<size_t>(units()), false);
  has_target_ = held_;
  adding_left_.assign(static_cast<size_t>(units()), 0);
  for (int b = schedule_.lowest_trained; b <= blocks(); ++b) {
    for (int u : trained_units(b)) ++adding_left_[u];
  }
}

void Builder::build_forward(const std::vector<Visit>& visits) {
  size_t next = 0;  // the first visit that is not gathered yet
  for (int b = 0; b < blocks(); ++b) {
    for (size_t i = 0; i < visits.size(); ++i) {
      if (visits[i].first != b) continue;
      const size_t ahead =
          std::min(visits.size(), i + 1 + static_cast<size_t>(options_.forward_prefetch));
      for (; next < ahead; ++next) hold(visits[next].unit);
    }
    emit_forward(b);
    // The last block's unit, and what the loss reads, stay for backward; so does what was gathered
    // ahead for another visit.
    for (size_t i = 0; i < visits.size(); ++i) {
      if (visits[i].last != b || (b + 1 == blocks() && runs_backward(b))) continue;
      bool wanted = false;
      for (size_t later = i + 1; later < next; ++later)
        wanted = wanted || visits[later].unit == visits[i].unit;
      if (!wanted) drop(visits[i].unit);
    }
  }
  for (; next < visits.size(); ++next) hold(visits[next].unit);
}

void Builder::build_gradients(const std::vector<Visit>& visits) {
  if (!clips()) {
    build_backward(visits, GradUse::sum);
  } else if (clips_by(privacy::PassKind::two_pass)) {
    build_backward(visits, GradUse::norm);
    emit_coefficients(-1);
    build_backward(visits, GradUse::clip);
  } else if (clips_by(privacy::PassKind::keep)) {
    build_backward(visits, GradUse::keep);
    emit_coefficients(-1);
    if (schedule_.exchanges()) exchange_coefficients();
    for (int u : trained_units_backward()) {
      if (!sums_in_body(u) || sums_received(u)) continue;
      sum_kept(u);
      if (!reduces_in_body() || schedule_.exchanges(u) || reduces_late(u)) continue;
      finish_reductions();
      emit_reduce(u);
    }
    finish_reductions();
  } else {
    build_backward(visits, GradUse::book);
  }
}

void Builder::hold(int u, std::vector<int> after) {
  if (held_[u]) return;
  held_[u] = true;
  finish(u);
  gather(u, std::move(after));
}
void Builder::drop(int u) {
  held_[u] = false;
  release_params(u);
}

void Builder::emit_forward(int b) {
  const BlockShape& block = shape_.blocks[b];
  for (int u : trained_units(b)) finish(u);
  Op op{.kind = OpKind::forward,
        .block = b,
        .after = waits_for_params(b),
        .creates = {flow(b)},
        .scratch_bytes =
            std::max({block.forward_scratch_bytes, block.score_scratch_bytes - block.output_bytes,
                      block.early_scratch_bytes - block.kept_bytes - block.output_bytes})};
  if (tapes(b)) {
    add(op.creates, tape(b));
    add(op.creates, reported(b));
  } else {
    const bool keeps = selective() && runs_backward(b);
    op.scratch_bytes += block.saved_bytes + (keeps ? 0 : block.kept_bytes);
    if (keeps) add(op.creates, kept(b));
  }
  const bool reads_input_again = runs_backward(b) && (checkpointed() || block.keeps_input);
  if (b > 0 && !reads_input_again && !output_outlives_forward(b - 1))
    op.frees.push_back(flow(b - 1));
  emit(std::move(op));
}

void Builder::build_backward(const std::vector<Visit>& visits, GradUse use) {
  const bool sums = use == GradUse::sum || use == GradUse::clip;
  size_t next = 0;
  for (int b = blocks(); runs_backward(b); --b) {
    for (size_t i = 0; i < visits.size(); ++i) {
      if (visits[i].first != b) continue;
      const size_t ahead = std::min(
          visits.size(), i + (options_.backward_prefetch == BackwardPrefetch::pre ? 2 : 1));
      for (; next < ahead; ++next) hold(visits[next].unit);
    }
    if (b == blocks()) {
      emit_loss(use == GradUse::book ? GradUse::norm : use);
    } else {
      emit_backward(b, use);
    }
    for (size_t i = 0; i < visits.size(); ++i) {
      if (visits[i].last != b || !held_[visits[i].unit]) continue;
      const bool used_next = i + 1 < visits.size() && visits[i + 1].unit == visits[i].unit;
      if (!used_next) drop(visits[i].unit);
      if (options_.backward_prefetch == BackwardPrefetch::post && i + 1 < visits.size() &&
          next == i + 1)
        hold(visits[next++].unit);
    }
    if (sums) reduce_finished(b);
    if (schedule_.exchanges()) exchange_finished(b);
    if (use == GradUse::book) {
      const std::vector<int>& layer_of = schedule_.layers.of_block;
      const int layer = layer_of[b];
      const auto first = layer_of.begin() + schedule_.lowest_trained, here = layer_of.begin() + b;
      const bool ends = std::find(first, here, layer) == here;
      if (ends) sum_booked(layer);
    }
    // Without prefetch the next gather waits until the gradients are gone: nothing of the two
    // overlaps.
    if (options_.backward_prefetch == BackwardPrefetch::none) {
      for (size_t i = 0; i + 1 < visits.size(); ++i) {
        if (visits[i].last != b || next != i + 1) continue;
        std::vector<int> after;
        if (reduced_by_[visits[i].unit] >= 0) after.push_back(reduced_by_[visits[i].unit]);
        hold(visits[next++].unit, after);
      }
    }
  }
  finish_reductions();
}

// Block b has added its gradients: units that wait for no other are reduced.
void Builder::reduce_finished(int b) {
  for (int u : trained_units(b)) {
    if (--adding_left_[u] > 0 || !reduces_in_body()) continue;
    finish_reductions();
    emit_reduce(u);
  }
}

// Block b's gradients are kept: units that wait for no other go to the ranks that update them.
void Builder::exchange_finished(int b) {
  for (int u : trained_units(b)) {
    if (--adding_left_[u] > 0 || !schedule_.exchanges(u)) continue;
    finish_reductions();
    reduced_by_[u] = emit({.kind = OpKind::exchange,
                           .lane = Lane::reduce,
                           .unit = u,
                           .creates = {received(u)},
                           .note = "kept gradients"});
    unfinished_.push_back(u);
  }
}

void Builder::exchange_coefficients() {
  coefficients_by_ = emit({.kind = OpKind::exchange, .lane = Lane::reduce, .note = "coefficients"});
}

// Buffers that a sink writes into, made at the first block that it hears of a unit from.
void Builder::create_targets(Op& op, int b, GradUse use) {
  const bool sums = use == GradUse::sum || use == GradUse::clip;
  if (!sums && use != GradUse::keep) return;
  for (int u : trained_units(b)) {
    if (has_target_[u]) continue;
    has_target_[u] = true;
    if (sums && !accumulates_whole_) op.creates.push_back(sink_target(u));
    if (use == GradUse::keep && !combines_several()) add(op.creates, sample_grads(u));
  }
}

void Builder::emit_loss(GradUse use) {
  const int last = blocks() - 1;
  const BlockShape& loss = shape_.loss;
  Op op{.kind = OpKind::loss,
        .block = blocks(),
        .use = loss.params.empty() ? GradUse::none : use,
        .after = waits_for_params(blocks()),
        .scratch_bytes = loss.forward_scratch_bytes};
  const bool again = use == GradUse::clip && books();  // the gradient went on long ago
  const bool wanted = runs_backward(last) && !again;
  Buffer grad = flow_grad(last);
  grad.bytes = loss.output_bytes;
  if (!wanted) {
    op.scratch_bytes += loss.output_bytes;
  } else {
    op.creates.push_back(grad);
  }
  const bool comes_again =
      use == GradUse::norm && (clips_by(privacy::PassKind::two_pass) || !loss.params.empty());
  if (!comes_again && !block_frees_output(last)) op.frees.push_back(flow(last));
  // The loss reports from the midst of its own temporaries.
  op.scratch_bytes = std::max(op.scratch_bytes + sink_scratch(loss, use),
                              loss.late_scratch_bytes + (wanted ? 0 : loss.output_bytes));
  if (use == GradUse::norm) add(op.creates, tied_rows());
  create_targets(op, blocks(), use);
  emit(std::move(op));
}

// `revives`: the output is gone, and backward reads it.
void Builder::emit_recompute(int b, bool revives) {
  const BlockShape& block = shape_.blocks[b];
  Op op{.kind = OpKind::recompute,
        .block = b,
        .after = waits_for_params(b),
        .scratch_bytes = block.recompute_skips_output ? block.recompute_scratch_bytes
                                                      : block.forward_scratch_bytes};
  add(op.creates, tape(b));
  int64_t output_made = 0;
  if (block.keeps_output && revives) {
    op.creates.push_back(flow(b));
    output_made = block.output_bytes;
  } else if (!block.recompute_skips_output) {
    op.scratch_bytes += block.output_bytes;  // where flow(b) lives, it takes its place
  }
  const int64_t before =  // if it is selective, attention's result is there
      selective()
          ? block.early_scratch_bytes
          : std::max(block.score_scratch_bytes, block.early_scratch_bytes - block.kept_bytes);
  op.scratch_bytes = std::max(op.scratch_bytes, before - output_made);
  emit(std::move(op));
}

void Builder::emit_backward(int b, GradUse use) {
  const BlockShape& block = shape_.blocks[b];
  const bool last_pass = use == GradUse::sum || use == GradUse::clip || use == GradUse::keep;
  if (checkpointed()) emit_recompute(b, last_pass);
  Op op{.kind = OpKind::backward,
        .block = b,
        .use = block.params.empty() ? GradUse::none : use,
        .after = waits_for_params(b),
        .scratch_bytes = use == GradUse::book && !schedule_.books_nothing[b]
                             ? block.book_scratch_bytes
                             : block.backward_scratch_bytes,
        .sink_scratch_bytes = sink_scratch(block, use)};
  if (b > schedule_.lowest_trained) {
    op.creates.push_back(flow_grad(b - 1));
  } else {
    op.scratch_bytes += block.input_grad_bytes;  // if it is made all the same
  }
  if (use == GradUse::book) {
    add(op.creates, booked(b));
    if (schedule_.remakes_tape[b] || splits_tape(b)) add(op.frees, tape(b));
    if (!books_output_grad(b)) op.frees.push_back(flow_grad(b));
    if (schedule_.books_nothing[b]) add_final_frees(op, b);
  } else {
    if (use == GradUse::keep) {
      add(op.creates, booked(b));
      const int64_t made = b > schedule_.lowest_trained ? block.input_grad_bytes : 0,
                    most = most_with_copies_[static_cast<size_t>(b)] - made;
      op.scratch_bytes = std::max<int64_t>(0, std::max(op.scratch_bytes, most) - booked(b).bytes);
    }
    if (use != GradUse::keep || !books_table_[b]) op.frees.push_back(flow_grad(b));
    if (last_pass) {
      add_final_frees(op, b);
    } else if (checkpointed()) {
      add(op.frees, tape(b));
    }
  }
  if (b == tied_block_ && (use == GradUse::norm || use == GradUse::book))
    add(op.frees, tied_rows());
  create_targets(op, b, use);
  emit(std::move(op));
}

// What nothing reads when block b's gradients are made.
void Builder::add_final_frees(Op& op, int b) const {
  const BlockShape& block = shape_.blocks[b];
  add(op.frees, splits_tape(b) ? reported(b) : tape(b));
  if (selective()) add(op.frees, kept(b));
  if (block.keeps_output) op.frees.push_back(flow(b));
  const bool input_is_live = b > 0 && (block.keeps_input || checkpointed());
  if (input_is_live && !block_frees_output(b - 1)) op.frees.push_back(flow(b - 1));
}

int64_t Builder::sink_scratch(const BlockShape& block, GradUse use) const {
  int64_t largest = 0;
  for (const Report& report : block.reports) {
    int64_t bytes = report_scratch(report, use);
    if (bytes > 0)
      bytes += use == GradUse::book ? report.held_bytes - block.booked_bytes : report.live_bytes;
    largest = std::max(largest, bytes);
  }
  return largest;
}

// The sink's own temporaries.
int64_t Builder::report_scratch(const Report& report, GradUse use) const {
  const bool table = report.by == Report::By::embedding;
  switch (use) {
    case GradUse::norm:
    case GradUse::book: {
      const auto id = static_cast<size_t>(report.param);
      const ParamShape& param = shape_.params[id];
      const std::vector<privacy::NormRule>& rules = options_.clip->rules;
      return privacy::norm_sink_scratch_bytes(
          report,
          {param.dims[0], param.numel() / param.dims[0],
           id < rules.size() ? rules[id] : privacy::NormRule::ghost},
          options_.clip->tile, report.param == schedule_.tied_table ? tied_tokens_ : 0,
          options_.compute, options_.on_gpu, options_.sample_products);
    }
    case GradUse::keep:
      return privacy::keep_sink_scratch_bytes(report, options_.compute, options_.on_gpu,
                                              options_.sample_products);
    case GradUse::clip:
      return privacy::clipped_sink_scratch_bytes(report, options_.compute, options_.on_gpu,
                                                 options_.sample_products);
    case GradUse::sum:
      return summed_sink_scratch_bytes({table ? report.samples * report.tokens : shape_.batch,
                                        report.numel, report.by,
                                        accumulates_whole_ || report.repeated, options_.compute,
                                        schedule_.grad_dtype, options_.on_gpu});
    default:
      return 0;
  }
}

// Of one layer, or with -1 of all.
void Builder::emit_coefficients(int layer) {
  emit({.kind = OpKind::coefficients,
        .block = -1,
        .use = GradUse::clip,
        .layer = layer,
        .note = "clip"});
}

// A layer's norms are known: its sums are made from what was booked, the loss's by making its
// gradient once more. The loss comes last, when what the blocks booked is gone; but first if the
// embedding adds to what it sums (a tied table), or if it reads a condition that the blocks let go.
void Builder::sum_booked(int layer) {
  emit_coefficients(options_.clip->layers ? layer : -1);
  std::vector<int> order;
  for (int b = blocks() - 1; runs_backward(b); --b) order.push_back(b);
  const bool last = schedule_.tied_table < 0 && !shape_.condition;
  order.insert(last ? order.end() : order.begin(), blocks());
  for (int b : order) {
    if (schedule_.layers.of_block[b] != layer) continue;
    if (b < blocks() && sums_booked_later(b)) continue;
    const bool reads = b == blocks() ? !shape_.loss.params.empty() : schedule_.remakes_tape[b];
    std::vector<int> gathered;
    for (int u : schedule_.layout.units_of_block[b]) {
      if (!reads || access(u) != ParamAccess::per_use || held_[u]) continue;
      hold(u);
      gathered.push_back(u);
    }
    if (b == blocks()) {
      if (reads) emit_loss(GradUse::clip);
    } else {
      if (reads) emit_recompute(b, /*revives=*/false);
      emit_weight_grad(b);
    }
    for (int u : gathered) drop(u);
    reduce_finished(b);
  }
}

void Builder::emit_weight_grad(int b, std::vector<Buffer> creates) {
  Op op{
      .kind = OpKind::weight_grad, .block = b, .use = GradUse::clip, .creates = std::move(creates)};
  for (const Report& report : shape_.blocks[b].reports) {
    if (books() || schedule_.booked_param[static_cast<size_t>(report.param)])
      op.scratch_bytes = std::max(op.scratch_bytes, report_scratch(report, GradUse::clip));
  }
  if (books() ? books_output_grad(b) : books_table_[b]) op.frees.push_back(flow_grad(b));
  add(op.frees, booked(b));
  if (books()) {
    if (!schedule_.books_nothing[b]) add_final_frees(op, b);
    create_targets(op, b, GradUse::clip);
  }
  emit(std::move(op));
}

// keep: a unit's clipped sum, from the kept gradients if neither the update nor a part of its own
// reads them, and from what was booked.
void Builder::sum_kept(int u) {
  if (schedule_.exchanges(u)) {
    emit({.kind = OpKind::combine,
          .unit = u,
          .use = GradUse::clip,
          .after = {reduced_by_[u], coefficients_by_},
          .frees = {received(u)},
          .note = "clip"});
    return;
  }
  std::vector<Buffer> target;
  if (!accumulates_whole_) target = {sink_target(u)};
  if (!combines_late() && !combines_several()) {
    Op op{.kind = OpKind::combine,
          .unit = u,
          .use = GradUse::clip,
          .creates = std::exchange(target, {}),
          .note = "clip"};
    add(op.frees, sample_grads(u));
    emit(std::move(op));
  }
  for (int b = blocks() - 1; b >= 0; --b) {
    const auto& of_block = schedule_.layout.units_of_block[b];
    if (books_some(b) && std::find(of_block.begin(), of_block.end(), u) != of_block.end())
      emit_weight_grad(b, std::exchange(target, {}));
  }
}

void Builder::emit_reduce(int u) {
  Op op{.kind = OpKind::reduce, .lane = Lane::reduce, .unit = u};
  if (wired_) op.creates.push_back(wire(u));
  if (accumulates_shard_) {
    op.creates.push_back(reduced(u));
  } else if (!into_shard()) {
    op.creates.push_back(grad_shard(u));
  }
  reduced_by_[u] = emit(std::move(op));
  if (part_ == Part::body && !into_shard()) unfinished_.push_back(u);
}

// Whole gradients are let go when the next reduction is about to be issued: two of them at most,
// and backward overlaps with reducing.
void Builder::finish_reductions() {
  for (int u : unfinished_) {
    if (schedule_.exchanges(u)) {
      emit({.kind = OpKind::release,
            .unit = u,
            .after = {reduced_by_[u]},
            .frees = {sample_grads(u)},
            .note = "kept gradients"});
      continue;
    }
    Op op{.kind = OpKind::release,
          .unit = u,
          .after = {reduced_by_[u]},
          .frees = {grad(u)},
          .note = "gradient"};
    if (accumulates_shard_) {
      op.kind = OpKind::combine;
      op.note = "add shard";
      op.frees.push_back(reduced(u));
      // as in summed_sink_scratch_bytes
      const bool copied = !options_.on_gpu && options_.reduce != schedule_.grad_shard_dtype;
      if (copied) op.scratch_bytes = unit(u).shard_numel * dtype_bytes(schedule_.grad_shard_dtype);
    }
    emit(std::move(op));
  }
  unfinished_.clear();
}

}  // namespace veil
