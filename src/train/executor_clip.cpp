// What the executor does with gradients: sums, clips, combines and updates.
#include "base/error.h"
#include "kernels/clip_scale.h"
#include "kernels/noisy_update.h"
#include "kernels/sample_combine.h"
#include "kernels/update.h"
#include "train/clip_state.h"
#include "train/executor_state.h"

namespace veil {

std::unique_ptr<Executor::ClipState> Executor::make_clip_state() {
  ClipState::Targets targets;
  targets.sums = [this](ParamId id, int64_t first, int64_t count) { return gradient_target(id, first, count); };
  targets.kept = [this](ParamId id, int64_t first, int64_t count) {
    const Tensor& kept = units_[schedule_.layout.unit_of_param[id]].sample_grads;
    return kept.view({shape_.batch, -1}).narrow(1, schedule_.kept_offset[static_cast<size_t>(id)] + first, count);
  };
  return std::make_unique<ClipState>(schedule_, shape_, *options_.privacy, device_, std::move(targets));
}

GradSink& Executor::sink_for(const Op& op) {
  const auto block = static_cast<size_t>(op.block);
  const Tape* tape = block < tape_.size() ? &tape_[block] : nullptr;
  GradSink& all = clip_ ? clip_->sink(op.use, op.block, tape) : *sink_;
  GradSink& sink = trained_sink_ ? trained_sink_->around(all) : all;
  return timed_sink_ ? timed_sink_->around(sink) : sink;
}

void Executor::run_loss(const Op& op) {
  const int last = static_cast<int>(shape_.blocks.size()) - 1;
  // Of two evaluations the first one counts.
  const bool again = op.use == GradUse::clip || (op.use == GradUse::none && loss_counted_);
  const Tensor sum = again ? clip_->discarded_loss() : knobs_.narrow(0, kLossKnob, 1);
  loss_counted_ = true;
  Batch batch = input_;
  if (clip_) batch.counted = clip_->counted();
  Flow grad = model_.loss->run(*params_, flow_[last], batch, sum, sink_for(op));
  const bool made_before = op.creates.empty() || op.creates.front().role != BufferRole::flow_grad;
  if (!made_before) flow_grad_[last] = std::move(grad);
  after_reports(op);
}

// A block's reports have been made: kept gradients get their norms, and what no later pass reads is let go.
void Executor::after_reports(const Op& op) {
  if (op.use == GradUse::keep) {
    const auto norm = [&] {
      clip_->norm_kept(op.block, [&](int unit) { return units_[unit].sample_grads.view({shape_.batch, -1}); });
    };
    timed_sink_ ? timed_sink_->timed(norm) : norm();
  }
  if (op.kind != OpKind::backward) return;
  const bool remade = op.use == GradUse::book && schedule_.remakes_tape[static_cast<size_t>(op.block)];
  if (op.use == GradUse::book && !remade && !schedule_.books_nothing[static_cast<size_t>(op.block)]) return;
  Tape& tape = tape_[op.block];
  const bool comes_again =
      remade || (clip_ && options_.step.clip->pass == privacy::PassPlan::two_pass && !second_pass_);
  if (!comes_again || options_.step.checkpointing == Checkpointing::full) {
    tape = {};
  } else if (options_.step.checkpointing == Checkpointing::selective) {
    tape = {.kept = std::move(tape.kept)};
  }
}

void Executor::run_combine(const Op& op) {
  Unit& unit = units_[op.unit];
  if (op.use != GradUse::clip) {
    CategoryScope temporary(Category::temporary);
    unit.grad_shard.add_(unit.reduced);
    return;
  }
  const privacy::ClipCoefficients coefficients = clip_->coefficients_of();
  for (const ParamSlot& slot : schedule_.layout.units[op.unit].slots) {
    const int64_t kept = schedule_.kept_offset[static_cast<size_t>(slot.param)];
    if (kept < 0) continue;
    combine_samples(unit.sample_grads.view({shape_.batch, -1}).narrow(1, kept, slot.numel),
                    coefficients.of(slot.param, 0, shape_.batch), gradient_target(slot.param, 0, slot.numel),
                    schedule_.accumulates_whole);
  }
}

void Executor::run_update(const Op& op) {
  Unit& unit = units_[op.unit];
  const UnitLayout& layout = schedule_.layout.units[op.unit];
  const int64_t owned =
      unit.sample_grads.defined() || !unit.grad_shard.defined() ? layout.padded_numel : unit.grad_shard.numel();
  const bool ranged = !unit.staged_params.defined() && owned != unit.params.numel();
  const Tensor param = unit.staged_params.defined() ? unit.staged_params
                       : ranged                     ? own_part(unit.params, op.unit)
                                                    : unit.params;
  const Tensor& state = unit.staged_optimizer.defined() ? unit.staged_optimizer : unit.optimizer;
  const bool shard_only = param.numel() != layout.padded_numel;
  const int64_t first = shard_only ? ranks_.rank() * layout.shard_numel : 0;
  const bool some_frozen = std::any_of(layout.slots.begin(), layout.slots.end(),
                                       [&](const ParamSlot& slot) { return shape_.params[slot.param].frozen; });
  if (!clip_ && !some_frozen) {
    update_shard(param, update_gradient(op.unit), state, knobs_, rule_, layout.base + first);
    return;
  }
  // Parameter by parameter: noise is keyed by the element of the whole parameter.
  const Tensor noise_knobs = clip_ ? clip_->noise_knobs() : no_noise_;
  const NoiseSource noise = clip_ ? clip_->noise() : NoiseSource{};
  const int states = optimizer_states(options_.optimizer.kind);
  for (const ParamSlot& slot : layout.slots) {
    if (shape_.params[slot.param].frozen) continue;
    const int64_t begin = std::max(slot.offset, first), end = std::min(slot.offset + slot.numel, first + param.numel());
    if (begin >= end) continue;
    const int64_t place = begin - first, count = end - begin;
    NoisyUpdate of;
    of.param = param.narrow(0, place, count);
    if (states > 0) of.m = state.narrow(0, place, count);
    if (states > 1) of.v = state.narrow(0, param.numel() + place, count);
    if (unit.sample_grads.defined() && schedule_.kept_offset[static_cast<size_t>(slot.param)] >= 0) {
      const int64_t kept = schedule_.kept_offset[static_cast<size_t>(slot.param)] + begin - slot.offset;
      of.grad = unit.sample_grads.view({shape_.batch, -1}).narrow(1, kept, count);
      of.coefficients = clip_->coefficients_of().of(slot.param, 0, shape_.batch);
    } else {
      of.grad = update_gradient(op.unit).narrow(0, place, count);
    }
    of.first_index = layout.base + begin;
    of.parameter = static_cast<uint32_t>(slot.param);
    of.first_element = begin - slot.offset;
    noisy_update(of, knobs_, rule_, noise_knobs, noise);
  }
}

void Executor::set_clip_norms(const std::vector<double>& clip_norms) {
  VEIL_CHECK(clip_, "a clip norm for a step that is not private");
  StreamGuard guard(compute_);
  clip_->set_clip_norms(clip_norms);
}

Executor::ClipFacts Executor::clip_facts() {
  VEIL_CHECK(clip_, "a step that is not private counts nothing");
  StreamGuard guard(compute_);
  return clip_->facts();
}

Tensor Executor::squared_norms() {
  VEIL_CHECK(clip_, "a step that is not private has no norms a sample");
  StreamGuard guard(compute_);
  return clip_->squared_norms().cpu();
}

Tensor Executor::coefficients() {
  VEIL_CHECK(clip_, "a step that is not private has no coefficients");
  StreamGuard guard(compute_);
  return clip_->coefficient_values().cpu();
}

std::vector<Tensor> Executor::gradients() {
  StreamGuard guard(compute_);
  run_part(Part::prologue, 0);
  for (int m = 0; m < micro_batches_; ++m) run_part(Part::body, m);
  // What a private step leaves to its tail.
  for (const Op& op : schedule_.part(Part::tail)) {
    if (op.use != GradUse::clip || op.kind == OpKind::coefficients) continue;
    for (const Buffer& buffer : op.creates) create(buffer);
    run_compute(op, 0);
  }
  wait();
  std::vector<Tensor> found(shape_.params.size());
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitLayout& layout = schedule_.layout.units[u];
    // Summed over the micro-batches; whether over the ranks too, the schedule says.
    const bool summed = !schedule_.reduces || units_[u].reduced.defined() ||
                        (units_[u].grad_shard.defined() && !units_[u].grad.defined() &&
                         units_[u].grad_shard.numel() == layout.shard_numel);
    // What the update sums itself is summed here.
    if (!units_[u].grad.defined() && !units_[u].grad_shard.defined())
      create({BufferRole::grad_shard, static_cast<int>(u),
              layout.padded_numel * dtype_bytes(schedule_.grad_shard_dtype), Category::gradients, space_of(device_)});
    if (units_[u].sample_grads.defined())
      run_combine({.kind = OpKind::combine, .unit = static_cast<int>(u), .use = GradUse::clip});
    Tensor flat = units_[u].grad.defined() ? units_[u].grad : units_[u].grad_shard;
    const bool reduced_in_place =
        schedule_.reduces && options_.step.strategy == Strategy::ddp && !schedule_.accumulates_whole;
    if (summed && schedule_.reduces) {
      Tensor whole = empty_tensor({layout.padded_numel}, flat.scalar_type(), device_);
      own_part(whole, static_cast<int>(u)).copy_(flat);
      ranks_.gather->all_gather(own_part(whole, static_cast<int>(u)), whole)->wait();
      flat = whole;
    } else if (!summed && !reduced_in_place) {
      ranks_.reduce->all_reduce(flat)->wait();
    }
    wait();
    for (const ParamSlot& slot : layout.slots) {
      found[slot.param] = flat.narrow(0, slot.offset, slot.numel).view(shape_.params[slot.param].dims).cpu().clone();
      if (shape_.params[slot.param].frozen) found[slot.param].zero_();  // nobody has written there
    }
  }
  drop_step_buffers();
  return found;
}

}  // namespace veil
