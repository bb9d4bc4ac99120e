#include "engine/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "kernels/noisy_update.h"
#include "kernels/sample_combine.h"
#include "kernels/squared_norm.h"
#include "kernels/update.h"
#include "privacy/invariants.h"

namespace veil {

Gradients::Gradients(const ExecutorContext& context, UnitBuffers& units)
    : context_(context),
      units_(units),
      rule_(update_rule(context.options.optimizer, context.options.seed)),
      trained_(context.shape.params) {
  {
    CategoryScope scope(Category::optimizer);
    knobs_ = empty_tensor({kStepKnobs}, at::kDouble, context.device).zero_();
  }
  loss_sum_ = knob(knobs_, &StepKnobs::loss_sum);
  squared_norm_ = knob(knobs_, &StepKnobs::squared_norm);
  if (context.options.privacy) {
    CategoryScope scope(Category::norms);
    clip_ = make_clip_state();
    return;
  }
  std::vector<int64_t> numel;
  for (const ParamShape& param : context.shape.params) numel.push_back(param.numel());
  sums_ = std::make_unique<SummedSink>(std::move(numel), context.schedule.accumulates_whole,
                                       [&units](ParamId id, int64_t first, int64_t count) {
                                         return units.gradient_target(id, first, count);
                                       });
}

std::unique_ptr<ClipState> Gradients::make_clip_state() {
  UnitBuffers& units = units_;
  ClipState::Targets targets;
  targets.sums = [&units](ParamId id, int64_t first, int64_t count) {
    return units.gradient_target(id, first, count);
  };
  targets.kept = [&units](ParamId id, int64_t first, int64_t count) {
    return units.kept_target(id, first, count);
  };
  return std::make_unique<ClipState>(context_.schedule, context_.shape, *context_.options.privacy,
                                     context_.device, std::move(targets));
}

double Gradients::samples_in_step() const {
  const StepOptions& step = context_.options.step;
  return static_cast<double>(context_.shape.batch) * step.micro_batches * step.world;
}

// What the sum over the logical batch is divided by. A private step's divisor is the expected
// batch, whatever was drawn: the drawn size depends on the samples and would need noise of its own.
double Gradients::update_divisor() const {
  return clip_ ? clip_->expected_batch() : samples_in_step();
}

void Gradients::set_knobs(double learning_rate, int64_t step) {
  StepKnobs values;
  values.update =
      knobs_for_step(context_.options.optimizer, learning_rate, step, 1.0 / update_divisor());
  values.max_norm = context_.options.max_grad_norm;
  if (clip_) clip_->set_noise(step);
  updates_.assign(context_.schedule.layout.units.size(), 0);
  // The loss's sum belongs to the step before until the prologue clears it.
  constexpr int64_t count = offsetof(StepKnobs, loss_sum) / sizeof(double);
  Tensor host = empty_tensor({count}, at::kDouble, cpu_device());
  std::memcpy(host.data_ptr<double>(), &values, count * sizeof(double));
  // Not pinned: the driver has taken the values when the call returns, so the host need not wait.
  knobs_.narrow(0, 0, count).copy_(host, /*non_blocking=*/true);
}

void Gradients::begin_body(const Tensor& ids) {
  if (sums_) sums_->begin_body();
  if (clip_) clip_->begin_body(ids, coefficient_place());
}

GradSink& Gradients::sink(const Op& op, const Tape* tape) {
  GradSink& all = clip_ ? clip_->sink(op.use, op.block, tape) : *sums_;
  if (!context_.some_frozen) return all;
  trained_.around(all);
  return trained_;
}

void Gradients::zero(const Op& op) {
  loss_sum_.zero_();
  if (clip_) clip_->clear_tally();
  for (const Buffer& buffer : op.creates) units_.slot(buffer).zero_();
}

void Gradients::combine(const Op& op) {
  UnitTensors& unit = units_[op.unit];
  if (op.use != GradUse::clip) {
    CategoryScope temporary(Category::temporary);
    unit.grad_shard.add_(unit.reduced);
    return;
  }
  if (unit.received.defined()) return combine_received(op.unit);
  const Schedule& schedule = context_.schedule;
  // Those of all ranks are for what was received.
  const privacy::ClipCoefficients coefficients =
      schedule.exchanges() ? clip_->coefficients_of() : clip_->coefficients_of_kept();
  for (const ParamSlot& slot : context_.unit(op.unit).slots) {
    if (schedule.kept_offset[static_cast<size_t>(slot.param)] < 0) continue;
    const Tensor kept = units_.kept_together(slot.param);
    combine_samples(kept, coefficients.of(slot.param, 0, kept.size(0)),
                    units_.gradient_target(slot.param, 0, slot.numel), schedule.accumulates_whole);
  }
}

namespace {

// What of a parameter lies in a range of its unit's places.
struct Overlap {
  int64_t begin, end;  // places of the unit
  int64_t count() const { return std::max<int64_t>(0, end - begin); }
};
Overlap overlap(const ParamSlot& slot, int64_t first, int64_t count) {
  return {std::max(slot.offset, first), std::min(slot.offset + slot.numel, first + count)};
}

}  // namespace

// Every rank's samples' gradients of this rank's shard, added to what it has of earlier micro-batches.
void Gradients::combine_received(int unit) {
  const Tensor rows = units_.received(unit), &sums = units_[unit].grad_shard;
  const int64_t first = context_.first_of(sums, unit);
  for (const ParamSlot& slot : context_.unit(unit).slots) {
    const Overlap own = overlap(slot, first, sums.numel());
    if (own.count() == 0) continue;
    combine_samples(rows.narrow(1, own.begin - first, own.count()),
                    clip_->coefficients_of_kept().of(slot.param, 0, rows.size(0)),
                    sums.narrow(0, own.begin - first, own.count()), /*add=*/true,
                    context_.shape.batch);
  }
}

void Gradients::add_norm(const Op& op) {
  add_squared_norm(units_.update_gradient(op.unit), squared_norm_);
}

void Gradients::coefficients(const Op& op) {
  if (clip_) {
    clip_->coefficients(op.layer, coefficient_place());
  } else {
    clip_scale(knobs_);
  }
}

namespace {

// Of a unit's parameters, how many elements lie in `count` places from `first` on: the places
// between and behind parameters hold none.
int64_t elements_within(const UnitLayout& unit, int64_t first, int64_t count) {
  int64_t elements = 0;
  for (const ParamSlot& slot : unit.slots) elements += overlap(slot, first, count).count();
  return elements;
}

}  // namespace

void Gradients::update(const Op& op) {
  UnitTensors& unit = units_[op.unit];
  const UnitLayout& layout = context_.unit(op.unit);
  const ModelShape& shape = context_.shape;
  const bool fused = unit.sample_grads.defined() && !context_.schedule.accumulates_whole;
  const bool sums_received = unit.received.defined();
  const int64_t owned = sums_received                         ? layout.shard_numel
                        : fused || !unit.grad_shard.defined() ? layout.padded_numel
                                                              : unit.grad_shard.numel();
  const bool ranged = !unit.staged_params.defined() && owned != unit.params.numel();
  const Tensor param = unit.staged_params.defined() ? unit.staged_params
                       : ranged                     ? context_.own_part(unit.params, op.unit)
                                                    : unit.params;
  const Tensor& state = unit.staged_optimizer.defined() ? unit.staged_optimizer : unit.optimizer;
  const int64_t first = context_.first_of(param, op.unit);
  if (!clip_) {
    update_shard(param, units_.update_gradient(op.unit), state, knobs_, rule_, layout.base + first);
    return;
  }
  // Parameter by parameter: noise is keyed by the element of the whole parameter.
  int64_t noised = 0;
  std::vector<NoisyUpdate> ranges;
  const int states = optimizer_states(context_.options.optimizer.kind);
  for (const ParamSlot& slot : layout.slots) {
    const Overlap own = overlap(slot, first, param.numel());
    const int64_t begin = own.begin, place = begin - first, count = own.count();
    if (count == 0) continue;
    NoisyUpdate& of = ranges.emplace_back();
    of.param = param.narrow(0, place, count);
    if (states > 0) of.m = state.narrow(0, place, count);
    if (states > 1) of.v = state.narrow(0, param.numel() + place, count);
    if (sums_received) {
      of.grad = units_.received(op.unit).narrow(1, place, count);
      of.coefficients = clip_->coefficients_of_kept().of(slot.param, 0, of.grad.size(0));
      of.together = shape.batch;
    } else if (fused && context_.schedule.kept_offset[static_cast<size_t>(slot.param)] >= 0) {
      of.grad = units_.kept_target(slot.param, begin - slot.offset, count);
      of.coefficients = clip_->coefficients_of().of(slot.param, 0, shape.batch);
    } else {
      of.grad = units_.update_gradient(op.unit).narrow(0, place, count);
    }
    of.first_index = layout.base + begin;
    of.parameter = static_cast<uint32_t>(slot.param);
    of.first_element = begin - slot.offset;
    noised += count;
  }
  noisy_update(ranges, knobs_, rule_, clip_->noise_knobs(), clip_->noise());
  privacy::expect_noised(layout.name, noised, elements_within(layout, first, param.numel()));
  if (!updates_.empty()) ++updates_[static_cast<size_t>(op.unit)];
}

void Gradients::expect_noised() const {
  const std::vector<UnitLayout>& units = context_.schedule.layout.units;
  for (size_t i = 0; i < units.size(); ++i) {
    if (!units[i].frozen) privacy::expect_one_update(units[i].name, updates_[i]);
  }
}

void Gradients::rehearse() {
  const StepOptions& step = context_.options.step;
  auto stand_in = [&](int64_t numel, DType dtype) {
    return empty_tensor({numel}, dtype, context_.device).zero_();
  };
  Tensor state;
  if (const int states = optimizer_states(context_.options.optimizer.kind))
    state = stand_in(int64_t{8} * states, step.optimizer_state());
  const DType summed = context_.schedule.grad_shard_dtype;
  update_shard(stand_in(8, step.storage), stand_in(8, summed), state, knobs_, rule_, 0);
  const Tensor knobs = stand_in(kStepKnobs, at::kDouble);
  add_squared_norm(stand_in(8, summed), knob(knobs, &StepKnobs::squared_norm));
  clip_scale(knobs);
}

double Gradients::read_loss_sum() const {
  StreamGuard guard(context_.compute);
  return loss_sum_.cpu().data_ptr<double>()[0];
}

double Gradients::read_grad_norm() const {
  VEIL_CHECK(context_.options.step.grad_norm, "the gradient's norm is read but was not taken");
  StreamGuard guard(context_.compute);
  return std::sqrt(squared_norm_.cpu().data_ptr<double>()[0]) / samples_in_step();
}

}  // namespace veil
