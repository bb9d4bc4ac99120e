#include <algorithm>

#include "base/error.h"
#include "kernels/squared_norm.h"
#include "nn/summed_sink.h"
#include "step/schedule.h"

namespace veil {
namespace {

// A stretch of consecutive blocks that read one unit's parameters: it is gathered before the first and may be released after the last.
struct Visit {
  int unit, first, last;
};

class Builder {
 public:
  Builder(const ModelShape& shape, const StepOptions& options) : shape_(shape), options_(options) {
    schedule_.options = options;
    schedule_.layout = make_layout(shape, options.wrap, options.min_params, options.world);
    choose_access();
    choose_gradients();
  }

  Schedule build() {
    add_resident();
    build_prologue();
    build_body();
    build_tail();
    return std::move(schedule_);
  }

 private:
  // Decisions, taken once.

  void choose_access() {
    const bool as_stored = options_.storage == options_.compute && !options_.offload_params;
    const bool sharded = options_.world > 1 && options_.strategy != Strategy::ddp;
    if (options_.strategy == Strategy::zero3 && !(as_stored && !sharded)) {
      schedule_.access = ParamAccess::per_use;
    } else if (!as_stored) {
      schedule_.access = ParamAccess::per_step;
    } else {
      schedule_.access = sharded ? ParamAccess::refreshed : ParamAccess::resident;
    }
    schedule_.whole_params = !sharded || schedule_.access == ParamAccess::refreshed;
    gathers_ = sharded;
  }

  void choose_gradients() {
    const bool several = options_.micro_batches > 1;
    ddp_ = options_.strategy == Strategy::ddp;
    schedule_.reduces = options_.world > 1;
    // Whole gradients that outlive the body: summed over the micro-batches, reduced once in the tail.
    accumulates_whole_ = several && (ddp_ || !schedule_.reduces || options_.accumulate_in == AccumulateIn::whole);
    // Summed shards that outlive the body.
    accumulates_shard_ = several && !accumulates_whole_;
    schedule_.grad_dtype = accumulates_whole_ ? options_.accumulate() : options_.reduce;
    schedule_.grad_shard_dtype =
        accumulates_shard_ || into_shard() ? (several ? options_.accumulate() : options_.reduce) : options_.reduce;
    wired_ = schedule_.reduces && accumulates_whole_ && options_.reduce != schedule_.grad_dtype;
  }

  // The sink writes straight into what the update reads: there is nobody to reduce with, or ddp reduces in place.
  bool into_shard() const { return ddp_ || !schedule_.reduces; }
  bool reduces_in_body() const { return schedule_.reduces && !accumulates_whole_; }

  // Buffers.

  Space device() const { return options_.on_gpu ? Space::device : Space::host; }
  Space offloaded() const { return options_.on_gpu ? Space::pinned : Space::host; }
  const UnitLayout& unit(int u) const { return schedule_.layout.units[u]; }
  int units() const { return static_cast<int>(schedule_.layout.units.size()); }
  int blocks() const { return static_cast<int>(shape_.blocks.size()); }
  int64_t stored_numel(int u) const { return schedule_.whole_params ? unit(u).padded_numel : unit(u).shard_numel; }
  // zero2 stores parameters whole where it can, but updates its shard of them only.
  int64_t updated_numel(int u) const { return gathers_ ? unit(u).shard_numel : unit(u).padded_numel; }

  Buffer params(int u) const {
    return {BufferRole::params, u, stored_numel(u) * dtype_bytes(options_.storage), Category::parameters,
            options_.offload_params ? offloaded() : device()};
  }
  int64_t optimizer_bytes(int u) const {
    return optimizer_states(options_.optimizer) * updated_numel(u) * dtype_bytes(options_.optimizer_state());
  }
  Buffer optimizer(int u) const {
    return {BufferRole::optimizer, u, optimizer_bytes(u), Category::optimizer,
            options_.offload_optimizer ? offloaded() : device()};
  }
  Buffer whole(int u) const {
    return {BufferRole::whole, u, unit(u).padded_numel * dtype_bytes(options_.compute), Category::parameters, device()};
  }
  Buffer grad(int u) const {
    return {BufferRole::grad, u, unit(u).padded_numel * dtype_bytes(schedule_.grad_dtype), Category::gradients,
            device()};
  }
  Buffer grad_shard(int u) const {
    const int64_t numel = into_shard() ? unit(u).padded_numel : unit(u).shard_numel;
    return {BufferRole::grad_shard, u, numel * dtype_bytes(schedule_.grad_shard_dtype), Category::gradients, device()};
  }
  Buffer sink_target(int u) const { return into_shard() ? grad_shard(u) : grad(u); }
  Buffer wire(int u) const {
    return {BufferRole::wire, u, unit(u).padded_numel * dtype_bytes(options_.reduce), Category::communication,
            device()};
  }
  Buffer reduced(int u) const {
    return {BufferRole::reduced, u, unit(u).shard_numel * dtype_bytes(options_.reduce), Category::communication,
            device()};
  }
  Buffer staged_params(int u) const {
    return {BufferRole::staged_params, u, updated_numel(u) * dtype_bytes(options_.storage), Category::parameters,
            device()};
  }
  Buffer staged_optimizer(int u) const {
    return {BufferRole::staged_optimizer, u, optimizer_bytes(u), Category::optimizer, device()};
  }
  Buffer flow(int b) const {
    return {BufferRole::flow, b, shape_.blocks[b].output_bytes, Category::activations, device()};
  }
  Buffer flow_grad(int b) const {
    const BlockShape& block = shape_.blocks[b];
    return {BufferRole::flow_grad, b, block.output_grad_bytes ? block.output_grad_bytes : block.output_bytes,
            Category::activations, device()};
  }
  Buffer tape(int b) const {
    const int64_t kept = selective() ? 0 : shape_.blocks[b].kept_bytes;
    return {BufferRole::tape, b, shape_.blocks[b].saved_bytes + kept, Category::activations, device()};
  }
  Buffer kept(int b) const {
    return {BufferRole::kept, b, shape_.blocks[b].kept_bytes, Category::activations, device()};
  }

  static void add(std::vector<Buffer>& list, const Buffer& buffer) {
    if (buffer.bytes > 0) list.push_back(buffer);
  }

  // Issuing.

  std::vector<Op>& ops() { return schedule_.part(part_); }

  int emit(Op op) {
    if (op.lane != Lane::compute && last_compute_ >= 0) op.after.insert(op.after.begin(), last_compute_);
    std::sort(op.after.begin(), op.after.end());
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
    const int index = static_cast<int>(ops().size());
    if (op.lane == Lane::compute) last_compute_ = index;
    ops().push_back(std::move(op));
    return index;
  }

  void begin(Part part) {
    part_ = part;
    last_compute_ = -1;
    gathered_by_.assign(static_cast<size_t>(units()), -1);
    reduced_by_.assign(static_cast<size_t>(units()), -1);
  }

  // Brings a unit's parameters into reach; the operation that finishes it is in gathered_by_ for the first compute operation to wait for.
  void gather(int u, std::vector<int> after = {}) {
    std::vector<Buffer> creates;
    if (schedule_.access != ParamAccess::refreshed) creates = gathered(u);
    if (options_.offload_params) {
      const int copied = emit({.kind = OpKind::copy_in,
                               .lane = Lane::copy,
                               .unit = u,
                               .after = std::move(after),
                               .creates = creates,
                               .note = "params"});
      gathered_by_[u] =
          gathers_ ? emit({.kind = OpKind::gather, .lane = Lane::gather, .unit = u, .after = {copied}}) : copied;
      return;
    }
    if (gathers_) {
      gathered_by_[u] = emit(
          {.kind = OpKind::gather, .lane = Lane::gather, .unit = u, .after = std::move(after), .creates = creates});
    } else {
      emit({.kind = OpKind::gather, .unit = u, .creates = creates, .note = "cast"});
    }
  }

  // What a compute operation that reads block b's parameters must wait for.
  std::vector<int> waits_for_params(int b) {
    std::vector<int> after;
    for (int u : schedule_.layout.units_of_block[b]) {
      if (gathered_by_[u] >= 0) after.push_back(gathered_by_[u]);
      gathered_by_[u] = -1;
    }
    return after;
  }

  // Parts.

  void add_resident() {
    const int64_t sample_bytes = shape_.input.bytes(options_.compute) + shape_.target.bytes(options_.compute) +
                                 (shape_.condition ? shape_.condition->bytes(options_.compute) : 0);
    schedule_.resident.push_back(
        {BufferRole::data, 0, sample_bytes * shape_.batch * options_.micro_batches, Category::data, device()});
    if (options_.micro_batches > 1) {
      schedule_.resident.push_back({BufferRole::input, 0, sample_bytes * shape_.batch, Category::data, device()});
    }
    schedule_.resident.push_back({BufferRole::knobs, 0, kKnobsBytes, Category::optimizer, device()});
    for (int u = 0; u < units(); ++u) {
      schedule_.resident.push_back(params(u));
      add(schedule_.resident, optimizer(u));
    }
  }

  void build_prologue() {
    begin(Part::prologue);
    Op zero{.kind = OpKind::zero, .note = "loss"};
    if (accumulates_whole_ || accumulates_shard_) {
      zero.note = "loss and gradients";
      for (int u = 0; u < units(); ++u) zero.creates.push_back(accumulates_whole_ ? sink_target(u) : grad_shard(u));
    }
    emit(zero);
    if (schedule_.access == ParamAccess::refreshed || schedule_.access == ParamAccess::per_step) {
      for (int u = 0; u < units(); ++u) gather(u);
    }
  }

  bool checkpointed() const { return options_.checkpointing != Checkpointing::none; }
  bool selective() const { return options_.checkpointing == Checkpointing::selective; }
  // Whether block b's backward reads its output as forward left it.
  bool output_outlives_forward(int b) const { return shape_.blocks[b].keeps_output && !checkpointed(); }

  std::vector<Visit> visits(const std::vector<int>& order) const {
    std::vector<Visit> found;
    std::vector<int> open(static_cast<size_t>(units()), -1);  // index of the visit that ended at the block before
    for (size_t i = 0; i < order.size(); ++i) {
      for (int u : schedule_.layout.units_of_block[order[i]]) {
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

  // An offloaded parameter of another type comes in as it is stored and is cast on the device.
  std::vector<Buffer> gathered(int u) const {
    std::vector<Buffer> list = {whole(u)};
    if (options_.offload_params && options_.storage != options_.compute) list.push_back(staged_params(u));
    return list;
  }

  void release_params(int u) { emit({.kind = OpKind::release, .unit = u, .frees = gathered(u), .note = "params"}); }

  void build_body() {
    begin(Part::body);
    if (options_.micro_batches > 1) emit({.kind = OpKind::load});
    const bool per_use = schedule_.access == ParamAccess::per_use;
    std::vector<int> forward_order, backward_order;
    for (int b = 0; b <= blocks(); ++b) forward_order.push_back(b);
    backward_order.assign(forward_order.rbegin(), forward_order.rend());
    const std::vector<Visit> forward_visits = per_use ? visits(forward_order) : std::vector<Visit>{};
    const std::vector<Visit> backward_visits = per_use ? visits(backward_order) : std::vector<Visit>{};
    held_.assign(static_cast<size_t>(units()), false);

    size_t next = 0;  // the first visit that is not gathered yet
    for (int b = 0; b < blocks(); ++b) {
      for (size_t i = 0; i < forward_visits.size(); ++i) {
        if (forward_visits[i].first != b) continue;
        const size_t ahead = std::min(forward_visits.size(), i + 1 + static_cast<size_t>(options_.forward_prefetch));
        for (; next < ahead; ++next) hold(forward_visits[next].unit);
      }
      emit_forward(b);
      // The last block's unit, and what the loss reads, stay for backward.
      for (const Visit& visit : forward_visits) {
        if (visit.last == b && b + 1 < blocks()) drop(visit.unit);
      }
    }
    for (; next < forward_visits.size(); ++next) hold(forward_visits[next].unit);
    build_backward(backward_visits);
  }

  void hold(int u, std::vector<int> after = {}) {
    if (held_[u]) return;
    held_[u] = true;
    gather(u, std::move(after));
  }
  void drop(int u) {
    held_[u] = false;
    release_params(u);
  }

  void emit_forward(int b) {
    const BlockShape& block = shape_.blocks[b];
    Op op{.kind = OpKind::forward,
          .block = b,
          .after = waits_for_params(b),
          .creates = {flow(b)},
          .scratch_bytes = block.forward_scratch_bytes};
    if (checkpointed()) {
      op.scratch_bytes += block.saved_bytes + (selective() ? 0 : block.kept_bytes);
      if (selective()) add(op.creates, kept(b));
    } else {
      add(op.creates, tape(b));
    }
    if (b > 0 && !checkpointed() && !block.keeps_input && !output_outlives_forward(b - 1))
      op.frees.push_back(flow(b - 1));
    emit(std::move(op));
  }

  void build_backward(const std::vector<Visit>& visits) {
    std::vector<int> last_user(static_cast<size_t>(units()), blocks() + 1),
        first_user(static_cast<size_t>(units()), -1);
    for (int b = 0; b <= blocks(); ++b) {
      for (int u : schedule_.layout.units_of_block[b]) {
        last_user[u] = std::min(last_user[u], b);
        first_user[u] = std::max(first_user[u], b);
      }
    }
    size_t next = 0;
    for (int b = blocks(); b >= 0; --b) {
      for (size_t i = 0; i < visits.size(); ++i) {
        if (visits[i].first != b) continue;
        const size_t ahead = std::min(visits.size(), i + (options_.backward_prefetch == BackwardPrefetch::pre ? 2 : 1));
        for (; next < ahead; ++next) hold(visits[next].unit);
      }
      emit_backward(b, first_user);
      for (size_t i = 0; i < visits.size(); ++i) {
        if (visits[i].last != b || !held_[visits[i].unit]) continue;
        const bool used_next = i + 1 < visits.size() && visits[i + 1].unit == visits[i].unit;
        if (!used_next) drop(visits[i].unit);
        if (options_.backward_prefetch == BackwardPrefetch::post && i + 1 < visits.size() && next == i + 1)
          hold(visits[next++].unit);
      }
      for (int u = 0; u < units(); ++u) {
        if (last_user[u] != b || !reduces_in_body()) continue;
        finish_reductions();
        emit_reduce(u);
      }
      // Without prefetch the next gather waits until the gradients are gone: nothing of the two overlaps.
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

  void emit_backward(int b, const std::vector<int>& first_user) {
    Op op;
    if (b == blocks()) {
      op = {.kind = OpKind::loss,
            .block = b,
            .after = waits_for_params(b),
            .creates = {flow_grad(b - 1)},
            .scratch_bytes = shape_.loss.forward_scratch_bytes};
      op.creates.back().bytes = shape_.loss.output_bytes;
      if (!output_outlives_forward(b - 1)) op.frees.push_back(flow(b - 1));
    } else {
      const BlockShape& block = shape_.blocks[b];
      if (checkpointed()) {
        Op again{.kind = OpKind::recompute,
                 .block = b,
                 .after = waits_for_params(b),
                 .scratch_bytes = block.recompute_skips_output ? 0 : block.forward_scratch_bytes};
        add(again.creates, tape(b));
        if (block.keeps_output) {
          again.creates.push_back(flow(b));
        } else if (!block.recompute_skips_output) {
          again.scratch_bytes += block.output_bytes;
        }
        emit(std::move(again));
      }
      op = {.kind = OpKind::backward,
            .block = b,
            .after = waits_for_params(b),
            .scratch_bytes = block.backward_scratch_bytes};
      if (b > 0) op.creates.push_back(flow_grad(b - 1));
      op.frees.push_back(flow_grad(b));
      add(op.frees, tape(b));
      if (selective()) add(op.frees, kept(b));
      if (block.keeps_output) op.frees.push_back(flow(b));
      const bool input_is_live = b > 0 && (block.keeps_input || checkpointed());
      if (input_is_live && !output_outlives_forward(b - 1)) op.frees.push_back(flow(b - 1));
    }
    const BlockShape& reporting = b == blocks() ? shape_.loss : shape_.blocks[b];
    if (b == blocks()) {
      // The loss reports from the midst of its own temporaries.
      op.scratch_bytes = std::max(op.scratch_bytes + sink_scratch(reporting), reporting.late_scratch_bytes);
    } else {
      op.sink_scratch_bytes = sink_scratch(reporting);
    }
    if (!accumulates_whole_) {
      for (int u : schedule_.layout.units_of_block[b]) {
        if (first_user[u] == b) op.creates.push_back(sink_target(u));
      }
    }
    op.note = reporting.params.empty() ? "" : "sum";
    emit(std::move(op));
  }

  int64_t sink_scratch(const BlockShape& block) const {
    int64_t largest = 0;
    for (const Report& report : block.reports) {
      const bool table = report.by == Report::By::embedding;
      const int64_t positions =
          table ? (report.ids ? report.ids : shape_.input.elements()) * shape_.batch : shape_.batch;
      const SinkScratch scratch{
          positions,        report.numel,         report.by,      accumulates_whole_ || report.repeated,
          options_.compute, schedule_.grad_dtype, options_.on_gpu};
      largest = std::max(largest, report.held_bytes + summed_sink_scratch_bytes(scratch));
    }
    return largest;
  }

  void emit_reduce(int u) {
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

  // Whole gradients are let go when the next reduction is about to be issued: two of them at most, and backward overlaps with reducing.
  void finish_reductions() {
    for (int u : unfinished_) {
      Op op{.kind = OpKind::release, .unit = u, .after = {reduced_by_[u]}, .frees = {grad(u)}, .note = "gradient"};
      if (accumulates_shard_) {
        op.kind = OpKind::combine;
        op.note = "add shard";
        op.frees.push_back(reduced(u));
        const bool copied =
            !options_.on_gpu && options_.reduce != schedule_.grad_shard_dtype;  // as in summed_sink_scratch_bytes
        if (copied) op.scratch_bytes = unit(u).shard_numel * dtype_bytes(schedule_.grad_shard_dtype);
      }
      emit(std::move(op));
    }
    unfinished_.clear();
  }

  void build_tail() {
    begin(Part::tail);
    if (schedule_.access == ParamAccess::per_step) {
      for (int u = 0; u < units(); ++u) release_params(u);
    }
    if (options_.grad_norm) take_norm();
    // Units in the order in which backward finished them; the next one's copies and reduction run under this one's update.
    copied_by_.assign(static_cast<size_t>(units()), -1);
    const int n = units();
    auto bring = [&](int u) {
      if (options_.offload_params || options_.offload_optimizer) copy_in_for_update(u);
      if (schedule_.reduces && accumulates_whole_ && !options_.grad_norm) emit_reduce(u);
    };
    int to_release = -1, copied_out = -1;
    bring(n - 1);
    for (int u = n - 1; u >= 0; --u) {
      if (u > 0) bring(u - 1);
      emit_update(u);
      const int copied = copy_out_after_update(u);
      if (to_release >= 0) release_staged(to_release, copied_out);
      to_release = copied >= 0 ? u : -1;
      copied_out = copied;
    }
    if (to_release >= 0) release_staged(to_release, copied_out);
  }

  // The norm of the whole gradient needs every unit's sum before the first update.
  void take_norm() {
    for (int u = units() - 1; u >= 0 && schedule_.reduces && accumulates_whole_; --u) emit_reduce(u);
    for (int u = units() - 1; u >= 0; --u) {
      Op op{.kind = OpKind::norm,
            .unit = u,
            .scratch_bytes = squared_norm_scratch_bytes(updated_numel(u), options_.on_gpu)};
      if (reduced_by_[u] >= 0) op.after.push_back(reduced_by_[u]);
      emit(std::move(op));
    }
    Op scale{.kind = OpKind::coefficients, .note = "norm"};
    if (gathers_) scale.after.push_back(emit({.kind = OpKind::reduce, .lane = Lane::reduce, .note = "norm"}));
    emit(std::move(scale));
  }

  std::vector<Buffer> staged(int u) const {
    std::vector<Buffer> list;
    if (options_.offload_params) list.push_back(staged_params(u));
    if (options_.offload_optimizer) add(list, staged_optimizer(u));
    return list;
  }

  void copy_in_for_update(int u) {
    const std::vector<Buffer> creates = staged(u);
    if (!creates.empty())
      copied_by_[u] =
          emit({.kind = OpKind::copy_in, .lane = Lane::copy, .unit = u, .creates = creates, .note = "update"});
  }

  void emit_update(int u) {
    Op op{.kind = OpKind::update, .unit = u, .note = name_of(options_.optimizer)};
    if (copied_by_[u] >= 0) op.after.push_back(copied_by_[u]);
    if (reduced_by_[u] >= 0) op.after.push_back(reduced_by_[u]);
    op.frees.push_back(grad_shard(u));
    if (accumulates_whole_ && !into_shard()) op.frees.push_back(grad(u));
    if (wired_) op.frees.push_back(wire(u));
    emit(std::move(op));
  }

  int copy_out_after_update(int u) {
    if (staged(u).empty()) return -1;
    return emit({.kind = OpKind::copy_out, .lane = Lane::copy, .unit = u, .note = "update"});
  }

  void release_staged(int u, int copied_out) {
    emit({.kind = OpKind::release, .unit = u, .after = {copied_out}, .frees = staged(u), .note = "staging"});
  }

  const ModelShape& shape_;
  StepOptions options_;
  Schedule schedule_;
  bool gathers_ = false, ddp_ = false, accumulates_whole_ = false, accumulates_shard_ = false, wired_ = false;

  Part part_ = Part::prologue;
  int last_compute_ = -1;
  std::vector<int> gathered_by_, reduced_by_, copied_by_;  // by unit: the operation of this part, or -1
  std::vector<bool> held_;                                 // by unit: whole at this point of the body (per_use)
  std::vector<int> unfinished_;                            // units whose whole gradient waits for its reduction
};

}  // namespace

Schedule build_schedule(const ModelShape& shape, const StepOptions& options) {
  VEIL_CHECK(!shape.blocks.empty(), "a model without blocks");
  if (options.world < 1) user_error("world {}: at least 1 rank is needed", options.world);
  if (options.micro_batches < 1) user_error("accumulation {}: at least 1 micro-batch is needed", options.micro_batches);
  if (options.forward_prefetch < 0) user_error("forward prefetch {}: a depth of 0 or more", options.forward_prefetch);
  return Builder(shape, options).build();
}

}  // namespace veil
