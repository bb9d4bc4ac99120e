// Builds a schedule. Included by the builder's own files only.
#pragma once

#include <vector>

#include "privacy/clip_method.h"
#include "step/schedule.h"

namespace veil {

// A stretch of consecutive blocks that read one unit's parameters: it is gathered before the first
// and may be released after the last.
struct Visit {
  int unit, first, last;
};

class Builder {
 public:
  Builder(const ModelShape& shape, const StepOptions& options);
  Schedule build();

 private:
  // Decisions, taken once (choose.cpp).
  void choose_access();
  void choose_lowest();
  Schedule::Stored stored(DType dtype, ParamAccess sharded) const;
  void choose_gradients();
  void choose_deferral();
  void choose_clipping();
  void choose_booked();
  void choose_exchange();
  void place_kept();
  void check_reports() const;
  // The sink writes straight into what the update reads: there is nobody to reduce with, or ddp
  // reduces in place.
  bool into_shard() const { return ddp_ || !schedule_.reduces; }
  bool reduces_in_body() const {
    return schedule_.reduces && !accumulates_whole_ && !schedule_.defers_update;
  }
  bool clips() const { return options_.clip.has_value(); }
  bool clips_by(privacy::PassKind pass) const { return clips() && options_.clip->pass == pass; }
  bool books() const {
    return clips_by(privacy::PassKind::book) || clips_by(privacy::PassKind::per_layer);
  }
  // keep: whether the sums are made where the update reads them, or just before.
  bool combines_late() const {
    return clips_by(privacy::PassKind::keep) && !accumulates_whole_ && !schedule_.reduces;
  }
  // keep: whether several micro-batches' gradients are summed at once, apart from the body.
  bool combines_several() const { return schedule_.combine_every > 1; }
  bool fused(int u) const {
    return combines_late() && schedule_.kept_numel[static_cast<size_t>(u)] > 0;
  }
  // keep: whether the update sums what ranks have sent each other of unit u.
  bool sums_received(int u) const { return schedule_.exchanges(u) && !accumulates_shard_; }
  // keep: whether the reduction of unit u, which is not exchanged, runs under the others' updates.
  bool reduces_late(int u) const {
    return schedule_.exchanges() && !schedule_.exchanges(u) && !accumulates_shard_;
  }
  // book: whether block b's sums are made when the next step's forward runs.
  bool sums_booked_later(int b) const;
  bool blocks_share_bookings() const;
  bool checkpointed() const { return options_.checkpointing != Checkpointing::none; }
  bool selective() const { return options_.checkpointing == Checkpointing::selective; }
  // Whether block b's backward reads its output as forward left it.
  bool output_outlives_forward(int b) const {
    return runs_backward(b) && shape_.blocks[b].keeps_output && !checkpointed();
  }
  // Whether block b lets go of its output itself; otherwise whoever reads it as an input does.
  bool block_frees_output(int b) const {
    return books() ? runs_backward(b) && shape_.blocks[b].keeps_output : output_outlives_forward(b);
  }
  // Blocks below the first that is trained keep nothing.
  bool runs_backward(int b) const { return b >= schedule_.lowest_trained; }
  bool tapes(int b) const { return runs_backward(b) && !checkpointed(); }
  // book: whether block b's tape goes with its backward, but for what its reports hold.
  bool splits_tape(int b) const {
    return books() && tapes(b) && !schedule_.books_nothing[b] && shape_.blocks[b].passing_bytes > 0;
  }
  std::vector<ParamId> covered(const Report& report) const;
  // keep: whether block b's reports are booked in part, and whether the gradient of its output is
  // among what they hold.
  bool books_some(int b) const {
    return b < blocks() && (books_table_[b] || booked_copies_[b] > 0);
  }
  // Whether what block b's reports hold is the gradient of its output.
  bool books_output_grad(int b) const {
    return books() && !schedule_.books_nothing[b] && shape_.blocks[b].reports_output_grad;
  }

  // Buffers.

  Space device() const { return options_.on_gpu ? Space::device : Space::host; }
  Space offloaded() const { return options_.on_gpu ? Space::pinned : Space::host; }
  const UnitLayout& unit(int u) const { return schedule_.layout.units[u]; }
  int units() const { return static_cast<int>(schedule_.layout.units.size()); }
  int blocks() const { return static_cast<int>(shape_.blocks.size()); }
  bool frozen(int u) const { return unit(u).frozen; }
  ParamAccess access(int u) const { return schedule_.stored(u).access; }
  // Brought into reach once per step, whatever the number of micro-batches.
  bool gathered_once(int u) const {
    return access(u) == ParamAccess::refreshed || access(u) == ParamAccess::per_step;
  }
  // The units whose gradients block b adds to.
  std::vector<int> trained_units(int b) const {
    std::vector<int> list;
    for (int u : schedule_.layout.units_of_block[b]) {
      if (!frozen(u)) list.push_back(u);
    }
    return list;
  }
  std::vector<int> trained_units() const {
    std::vector<int> list;
    for (int u = 0; u < units(); ++u) {
      if (!frozen(u)) list.push_back(u);
    }
    return list;
  }
  // In the order in which backward finishes them.
  std::vector<int> trained_units_backward() const {
    const std::vector<int> list = trained_units();
    return {list.rbegin(), list.rend()};
  }
  int64_t stored_numel(int u) const {
    return schedule_.stored(u).whole ? unit(u).padded_numel : unit(u).shard_numel;
  }
  // zero2 stores parameters whole if it can, but updates its shard of them only.
  int64_t updated_numel(int u) const {
    return gathers_ ? unit(u).shard_numel : unit(u).padded_numel;
  }

  Buffer params(int u) const {
    return {BufferRole::params, u, stored_numel(u) * dtype_bytes(schedule_.stored(u).dtype),
            Category::parameters, options_.offload_params ? offloaded() : device()};
  }
  int64_t optimizer_bytes(int u) const {
    if (frozen(u)) return 0;
    return optimizer_states(options_.optimizer) * updated_numel(u) *
           dtype_bytes(options_.optimizer_state());
  }
  Buffer optimizer(int u) const {
    return {BufferRole::optimizer, u, optimizer_bytes(u), Category::optimizer,
            options_.offload_optimizer ? offloaded() : device()};
  }
  Buffer whole(int u) const {
    return {BufferRole::whole, u, unit(u).padded_numel * dtype_bytes(options_.compute),
            Category::parameters, device()};
  }
  Buffer grad(int u) const {
    return {BufferRole::grad, u, unit(u).padded_numel * dtype_bytes(schedule_.grad_dtype),
            Category::gradients, device()};
  }
  Buffer grad_shard(int u) const {
    const int64_t numel = into_shard() ? unit(u).padded_numel : unit(u).shard_numel;
    return {BufferRole::grad_shard, u, numel * dtype_bytes(schedule_.grad_shard_dtype),
            Category::gradients, device()};
  }
  Buffer sink_target(int u) const { return into_shard() ? grad_shard(u) : grad(u); }
  Buffer wire(int u) const {
    return {BufferRole::wire, u, unit(u).padded_numel * dtype_bytes(options_.reduce),
            Category::communication, device()};
  }
  Buffer reduced(int u) const {
    return {BufferRole::reduced, u, unit(u).shard_numel * dtype_bytes(options_.reduce),
            Category::communication, device()};
  }
  Buffer staged_params(int u) const {
    return {BufferRole::staged_params, u, updated_numel(u) * dtype_bytes(schedule_.stored(u).dtype),
            Category::parameters, device()};
  }
  Buffer staged_optimizer(int u) const {
    return {BufferRole::staged_optimizer, u, optimizer_bytes(u), Category::optimizer, device()};
  }
  Buffer flow(int b) const {
    return {BufferRole::flow, b, shape_.blocks[b].output_bytes, Category::activations, device()};
  }
  Buffer flow_grad(int b) const {
    const BlockShape& block = shape_.blocks[b];
    return {BufferRole::flow_grad, b,
            block.output_grad_bytes ? block.output_grad_bytes : block.output_bytes,
            Category::activations, device()};
  }
  Buffer tape(int b) const {
    const BlockShape& block = shape_.blocks[b];
    const int64_t all = block.saved_bytes + (selective() ? 0 : block.kept_bytes);
    return {BufferRole::tape, b, all - reported(b).bytes, Category::activations, device()};
  }
  Buffer reported(int b) const {
    const BlockShape& block = shape_.blocks[b];
    const int64_t bytes =
        splits_tape(b) ? block.saved_bytes + block.kept_bytes - block.passing_bytes : 0;
    return {BufferRole::reported, b, bytes, Category::activations, device()};
  }
  Buffer kept(int b) const {
    return {BufferRole::kept, b, shape_.blocks[b].kept_bytes, Category::activations, device()};
  }

  // keep: every sample's gradient of a unit.
  Buffer sample_grads(int u) const {
    return {BufferRole::sample_grads, u,
            schedule_.combine_every * shape_.batch * schedule_.kept_numel[static_cast<size_t>(u)] *
                dtype_bytes(options_.compute),
            Category::clip_records, device()};
  }
  Buffer received(int u) const {
    return {BufferRole::received, u,
            options_.world * shape_.batch * unit(u).shard_numel * dtype_bytes(options_.compute),
            Category::clip_records, device()};
  }
  Buffer booked(int b) const {
    const int64_t bytes = clips_by(privacy::PassKind::keep) ? booked_copies_[static_cast<size_t>(b)]
                          : schedule_.books_nothing[b]      ? 0
                                                            : shape_.blocks[b].booked_bytes;
    return {BufferRole::booked, b, bytes, Category::clip_records, device()};
  }
  Buffer tied_rows() const {
    return {BufferRole::tied_rows, 0, tied_rows_bytes_, Category::clip_records, device()};
  }

  static void add(std::vector<Buffer>& list, const Buffer& buffer) {
    if (buffer.bytes > 0) list.push_back(buffer);
  }

  // Issuing (build.cpp).
  std::vector<Op>& ops() { return schedule_.part(part_); }
  int emit(Op op);
  void begin(Part part);
  void gather(int u, std::vector<int> after = {});
  std::vector<int> waits_for_params(int b);
  std::vector<Buffer> gathered(int u) const;
  void release_params(int u) {
    emit({.kind = OpKind::release, .unit = u, .frees = gathered(u), .note = "params"});
  }

  // Parts.
  void add_resident();
  void build_prologue();
  void emit_zero();
  void build_body();
  void build_sums();
  void build_turn();
  void build_tail();

  // The body (build_body.cpp).
  void build_forward(const std::vector<Visit>& visits);
  void build_gradients(const std::vector<Visit>& visits);
  std::vector<Visit> forward_visits() const;
  std::vector<Visit> backward_visits() const;
  void begin_body();
  std::vector<Visit> visits(const std::vector<int>& order) const;
  void hold(int u, std::vector<int> after = {});
  void drop(int u);
  void emit_forward(int b);
  void build_backward(const std::vector<Visit>& visits, GradUse use);
  void emit_loss(GradUse use);
  void emit_recompute(int b, bool revives);
  void emit_backward(int b, GradUse use);
  void create_targets(Op& op, int b, GradUse use);
  int64_t sink_scratch(const BlockShape& block, GradUse use) const;
  int64_t report_scratch(const Report& report, GradUse use) const;
  void reduce_finished(int b);
  void exchange_finished(int b);
  void exchange_coefficients();
  void emit_coefficients(int layer);
  void emit_weight_grad(int b, std::vector<Buffer> creates = {});
  void sum_booked(int layer);
  void sum_kept(int u);
  void sum_waiting(int u);
  void add_final_frees(Op& op, int b) const;
  void emit_reduce(int u);
  void finish_reductions();

  // A deferred tail (build.cpp).
  bool sums_in_body(int u) const;
  void begin_finishing();
  void finish(int u);
  void finish_all();

  // The tail (build.cpp).
  void take_norm();
  std::vector<Buffer> staged(int u) const;
  void copy_in_for_update(int u);
  void emit_update(int u);
  int copy_out_after_update(int u);
  void release_staged(int u, int copied_out);

  const ModelShape& shape_;
  StepOptions options_;
  Schedule schedule_;
  bool gathers_ = false, ddp_ = false, accumulates_whole_ = false, accumulates_shard_ = false,
       wired_ = false;

  // Clipping.
  std::vector<bool> has_booked_;   // keep: by unit
  std::vector<bool> books_table_;  // keep: by block
  // keep: by block, bytes of what is booked of products, and the most that lives with them
  std::vector<int64_t> booked_copies_, most_with_copies_;
  int64_t tied_rows_bytes_ = 0, tied_tokens_ = 0;
  int tied_block_ = -1;

  Part part_ = Part::prologue;
  int last_compute_ = -1;
  // A deferred tail: its units in the order of forward, and how many of them are on their way to the
  // other ranks, and updated.
  std::vector<int> finishing_;
  size_t reducing_ = 0, updated_ = 0;
  // by unit: the operation of this part, or -1
  std::vector<int> gathered_by_, reduced_by_, copied_by_;
  std::vector<bool> held_;        // by unit: whole at this point of the body (per_use)
  std::vector<bool> has_target_;  // by unit: what its gradients are written to is made
  std::vector<int> adding_left_;  // by unit: blocks that have gradients to add
  std::vector<int> unfinished_;   // units whose gradient waits for its reduction or exchange
  int coefficients_by_ = -1;      // the operation that exchanges them
};

}  // namespace veil
