#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/squared_norm.h"
#include "step/builder.h"

namespace veil {

Builder::Builder(const ModelShape& shape, const StepOptions& options)
    : shape_(shape), options_(options) {
  // Clipped sums are made and travel in fp32 or better: rounding must not move a sum by more than
  // the slack that the noise pays for.
  if (clips()) options_.reduce = sum_dtype(options_.compute);
  schedule_.options = options_;
  schedule_.layout = make_layout(shape, options.wrap, options.min_params, options.world);
  choose_access();
  choose_lowest();
  choose_gradients();
  choose_deferral();
  if (clips()) choose_clipping();
  choose_exchange();
  if (clips_by(privacy::PassKind::keep)) place_kept();
}

Schedule Builder::build() {
  add_resident();
  build_prologue();
  build_body();
  if (combines_several()) build_sums();
  if (schedule_.defers_update) build_turn();
  build_tail();
  return std::move(schedule_);
}

int Builder::emit(Op op) {
  if (op.lane != Lane::compute && last_compute_ >= 0)
    op.after.insert(op.after.begin(), last_compute_);
  std::sort(op.after.begin(), op.after.end());
  op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
  const int index = static_cast<int>(ops().size());
  if (op.lane == Lane::compute) last_compute_ = index;
  ops().push_back(std::move(op));
  return index;
}

void Builder::begin(Part part) {
  part_ = part;
  last_compute_ = -1;
  gathered_by_.assign(static_cast<size_t>(units()), -1);
  reduced_by_.assign(static_cast<size_t>(units()), -1);
  copied_by_.assign(static_cast<size_t>(units()), -1);
  finishing_.clear();
}

// Brings a unit's parameters into reach; the operation that finishes it is in gathered_by_ for the
// first compute operation to wait for.
void Builder::gather(int u, std::vector<int> after) {
  std::vector<Buffer> creates;
  if (access(u) != ParamAccess::refreshed) creates = gathered(u);
  if (options_.offload_params) {
    const int copied = emit({.kind = OpKind::copy_in,
                             .lane = Lane::copy,
                             .unit = u,
                             .after = std::move(after),
                             .creates = creates,
                             .note = "params"});
    gathered_by_[u] =
        gathers_
            ? emit({.kind = OpKind::gather, .lane = Lane::gather, .unit = u, .after = {copied}})
            : copied;
    return;
  }
  if (gathers_) {
    gathered_by_[u] = emit({.kind = OpKind::gather,
                            .lane = Lane::gather,
                            .unit = u,
                            .after = std::move(after),
                            .creates = creates});
  } else {
    emit({.kind = OpKind::gather, .unit = u, .creates = creates, .note = "cast"});
  }
}

// What a compute operation that reads block b's parameters must wait for.
std::vector<int> Builder::waits_for_params(int b) {
  std::vector<int> after;
  for (int u : schedule_.layout.units_of_block[b]) {
    if (gathered_by_[u] >= 0) after.push_back(gathered_by_[u]);
    gathered_by_[u] = -1;
  }
  return after;
}

void Builder::add_resident() {
  const int64_t sample_bytes = shape_.input.bytes(options_.compute) +
                               shape_.target.bytes(options_.compute) +
                               (shape_.condition ? shape_.condition->bytes(options_.compute) : 0);
  if (!options_.varying) {
    schedule_.resident.push_back({BufferRole::data, 0,
                                  sample_bytes * shape_.batch * options_.micro_batches,
                                  Category::data, device()});
  }
  if (options_.micro_batches > 1 || options_.varying) {
    schedule_.resident.push_back(
        {BufferRole::input, 0, sample_bytes * shape_.batch, Category::data, device()});
  }
  schedule_.resident.push_back(
      {BufferRole::knobs, 0, sizeof(StepKnobs), Category::optimizer, device()});
  if (clips()) {
    schedule_.resident.push_back({BufferRole::norms, 0,
                                  clip_state_layout(schedule_, shape_).bytes(), Category::norms,
                                  device()});
  }
  for (int u = 0; u < units(); ++u) {
    schedule_.resident.push_back(params(u));
    add(schedule_.resident, optimizer(u));
    if (combines_several() && !frozen(u)) add(schedule_.resident, sample_grads(u));
  }
}

void Builder::build_prologue() {
  begin(Part::prologue);
  emit_zero();
  for (int u = 0; u < units(); ++u) {
    if (gathered_once(u)) gather(u);
  }
}

void Builder::emit_zero() {
  Op zero{.kind = OpKind::zero, .note = "loss"};
  if (accumulates_whole_ || accumulates_shard_) {
    zero.note = "loss and gradients";
    for (int u : trained_units())
      zero.creates.push_back(accumulates_whole_ ? sink_target(u) : grad_shard(u));
  }
  emit(std::move(zero));
}

// An offloaded parameter of another type comes in as it is stored and is cast on the device.
std::vector<Buffer> Builder::gathered(int u) const {
  std::vector<Buffer> list = {whole(u)};
  if (options_.offload_params && schedule_.stored(u).dtype != options_.compute)
    list.push_back(staged_params(u));
  return list;
}

// keep: whether a unit's clipped sum is made in the body. What reads the step's own tokens cannot
// wait for the next step, which has others.
bool Builder::sums_in_body(int u) const {
  if (combines_late()) return false;
  if (!schedule_.defers_update || accumulates_whole_) return true;
  const std::vector<int>& blocks = unit(u).blocks;
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](int b) { return b < this->blocks() && books_table_[b]; });
}

bool Builder::sums_booked_later(int b) const {
  if (!schedule_.defers_update || accumulates_whole_) return false;
  const std::vector<int> units = trained_units(b);
  if (units.size() != 1) return false;
  // The first block reads the step's own samples, and the loss too. Neither can wait, nor can what is
  // summed with them.
  const std::vector<int>& together = unit(units[0]).blocks;
  return std::none_of(together.begin(), together.end(), [&](int other) {
    return other == 0 || other == blocks() || trained_units(other).size() != 1;
  });
}

// book: what waited of a unit.
void Builder::sum_waiting(int u) {
  std::vector<Buffer> target = {sink_target(u)};
  for (int b : unit(u).blocks) {
    if (b < blocks() && runs_backward(b) && sums_booked_later(b)) {
      has_target_[u] = true;  // made here
      emit_weight_grad(b, std::exchange(target, {}));
    }
  }
}

void Builder::begin_finishing() {
  finishing_ = trained_units();
  reducing_ = updated_ = 0;
}

// The deferred tail as far as unit u, in the order in which forward reads the units. A few sums are
// made ahead, so that the reductions do not wait for forward; a sum is no larger than the kept
// gradients of two samples. What a block booked is gone before the next step's forward reaches the
// block before it, whose output it may hold.
void Builder::finish(int u) {
  constexpr size_t kAhead = 4;
  const auto found = std::find(finishing_.begin(), finishing_.end(), u);
  if (found == finishing_.end()) return;
  const auto end = static_cast<size_t>(found - finishing_.begin()) + 1;
  for (; updated_ < end; ++updated_) {
    for (; reducing_ < std::min(updated_ + 1 + kAhead, finishing_.size()); ++reducing_) {
      const int next = finishing_[reducing_];
      if (clips_by(privacy::PassKind::keep) && !sums_in_body(next)) sum_kept(next);
      if (clips_by(privacy::PassKind::book)) sum_waiting(next);
      emit_reduce(next);
    }
    const int ready = finishing_[updated_];
    emit_update(ready);
    if (part_ == Part::turn && gathered_once(ready)) gather(ready);
  }
}

void Builder::finish_all() {
  if (!finishing_.empty()) finish(finishing_.back());
}

// A deferred tail and the next step's first micro-batch: a unit is updated just before forward reads
// it, and the reductions of those behind it run meanwhile.
void Builder::build_turn() {
  begin(Part::turn);
  begin_finishing();
  for (int u = 0; u < units(); ++u) {
    if (access(u) == ParamAccess::per_step) release_params(u);
  }
  begin_body();
  for (int u = 0; u < units(); ++u) {
    if (gathered_once(u) && frozen(u)) gather(u);
  }
  build_forward(forward_visits());
  finish_all();
  emit_zero();
  build_gradients(backward_visits());
}

void Builder::build_tail() {
  begin(Part::tail);
  for (int u = 0; u < units(); ++u) {
    if (access(u) == ParamAccess::per_step) release_params(u);
  }
  if (schedule_.defers_update) {
    begin_finishing();
    return finish_all();
  }
  if (options_.grad_norm) take_norm();
  // Units in the order in which backward finished them; the next one's copies and reduction run
  // under this one's update.
  const std::vector<int> trained = trained_units();
  const int n = static_cast<int>(trained.size());
  auto bring = [&](int u) {
    if (options_.offload_params || options_.offload_optimizer) copy_in_for_update(u);
    if (schedule_.reduces && accumulates_whole_ && !options_.grad_norm) emit_reduce(u);
  };
  for (int u : trained_units_backward()) {
    if (reduces_late(u)) emit_reduce(u);
  }
  int to_release = -1, copied_out = -1;
  if (n > 0) bring(trained[n - 1]);
  for (int i = n - 1; i >= 0; --i) {
    const int u = trained[i];
    if (i > 0) bring(trained[i - 1]);
    if (combines_late() && has_booked_[u]) sum_kept(u);
    emit_update(u);
    const int copied = copy_out_after_update(u);
    if (to_release >= 0) release_staged(to_release, copied_out);
    to_release = copied >= 0 ? u : -1;
    copied_out = copied;
  }
  if (to_release >= 0) release_staged(to_release, copied_out);
}

// The norm of the whole gradient needs every unit's sum before the first update.
void Builder::take_norm() {
  const std::vector<int> trained = trained_units_backward();
  for (int u : trained) {
    if (schedule_.reduces && accumulates_whole_) emit_reduce(u);
  }
  for (int u : trained) {
    Op op{.kind = OpKind::norm,
          .unit = u,
          .scratch_bytes = squared_norm_scratch_bytes(updated_numel(u), options_.on_gpu)};
    if (reduced_by_[u] >= 0) op.after.push_back(reduced_by_[u]);
    emit(std::move(op));
  }
  Op scale{.kind = OpKind::coefficients, .note = "norm"};
  if (gathers_)
    scale.after.push_back(emit({.kind = OpKind::reduce, .lane = Lane::reduce, .note = "norm"}));
  emit(std::move(scale));
}

std::vector<Buffer> Builder::staged(int u) const {
  std::vector<Buffer> list;
  if (options_.offload_params) list.push_back(staged_params(u));
  if (options_.offload_optimizer) add(list, staged_optimizer(u));
  return list;
}

void Builder::copy_in_for_update(int u) {
  const std::vector<Buffer> creates = staged(u);
  if (!creates.empty())
    copied_by_[u] = emit({.kind = OpKind::copy_in,
                          .lane = Lane::copy,
                          .unit = u,
                          .creates = creates,
                          .note = "update"});
}

void Builder::emit_update(int u) {
  Op op{.kind = OpKind::update, .unit = u, .note = name_of(options_.optimizer)};
  if (copied_by_[u] >= 0) op.after.push_back(copied_by_[u]);
  if (reduced_by_[u] >= 0) op.after.push_back(reduced_by_[u]);
  const bool clips_here = fused(u) || sums_received(u);
  if (clips()) op.note = clips_here ? "clip, noise, " + op.note : "noise, " + op.note;
  if (fused(u)) op.frees.push_back(sample_grads(u));
  if (sums_received(u)) {
    op.frees.push_back(received(u));
  } else if (!combines_late() || has_booked_[u]) {
    op.frees.push_back(grad_shard(u));
  }
  const bool outlives_body = accumulates_whole_ || schedule_.defers_update || reduces_late(u);
  if (outlives_body && !into_shard()) op.frees.push_back(grad(u));
  if (wired_) op.frees.push_back(wire(u));
  emit(std::move(op));
}

int Builder::copy_out_after_update(int u) {
  if (staged(u).empty()) return -1;
  return emit({.kind = OpKind::copy_out, .lane = Lane::copy, .unit = u, .note = "update"});
}

void Builder::release_staged(int u, int copied_out) {
  emit({.kind = OpKind::release,
        .unit = u,
        .after = {copied_out},
        .frees = staged(u),
        .note = "staging"});
}

int64_t message_bytes(const Op& op, const Schedule& schedule, int64_t batch) {
  const StepOptions& options = schedule.options;
  const bool exchanges = op.kind == OpKind::exchange;
  // the norm's square, or the coefficients
  if (op.unit < 0) return static_cast<int64_t>(sizeof(double)) * (exchanges ? batch : 1);
  const int64_t shard = schedule.layout.units[static_cast<size_t>(op.unit)].shard_numel;
  if (op.kind == OpKind::reduce) return shard * dtype_bytes(options.reduce);
  return shard * dtype_bytes(options.compute) * (exchanges ? batch : 1);
}

Schedule build_schedule(const ModelShape& shape, const StepOptions& options) {
  VEIL_CHECK(!shape.blocks.empty(), "a model without blocks");
  if (options.world < 1) field_error("world", "must be at least 1, got {}", options.world);
  if (options.micro_batches < 1)
    field_error("accumulation", "must be at least 1, got {}", options.micro_batches);
  if (options.forward_prefetch < 0)
    field_error("forward_prefetch", "must be 0 or more, got {}", options.forward_prefetch);
  return Builder(shape, options).build();
}

}  // namespace veil
