#include "engine/executor.h"

#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "engine/step_graphs.h"

namespace veil {

Executor::Executor(const Model& model, int64_t batch, const ExecutorOptions& options, Device device,
                   Batch data, Ranks ranks)
    : context_(model, batch, options, device, std::move(ranks)), units_(context_) {
  if (options.time_rows) {
    clock_ = std::make_unique<RowClock>(context_.schedule, device, options.time_reports);
    for (Communicator* lane : {context_.ranks.gather.get(), context_.ranks.reduce.get()}) {
      if (lane) lane->set_timing(true);
    }
  }
  synchronize(device);  // the data may have been made on another stream
  StreamGuard guard(context_.compute);
  gradients_ = std::make_unique<Gradients>(context_, units_);
  rows_ = std::make_unique<RowRunner>(context_, units_, *gradients_, clock_.get(), std::move(data));
  graphs_ = std::make_unique<StepGraphs>(context_, *rows_, *gradients_, clock_.get());
  units_.allocate_resident();
  StoredState(context_, units_).initialise();
}

Executor::~Executor() {
  try {
    wait();
    // a failed device has already been reported where the work was issued
  } catch (const std::exception&) {
  }
}

void Executor::prepare() {
  graphs_->prepare();
}

const std::string& Executor::graph_state() const {
  return graphs_->state();
}

void Executor::load(const Batch& samples) {
  rows_->load(samples);
}

void Executor::step(double learning_rate) {
  VEIL_CHECK(graphs_->prepared(), "step before prepare");
  StreamGuard guard(context_.compute);
  const bool defers = context_.schedule.defers_update;
  ++steps_;
  if (!defers) gradients_->set_knobs(learning_rate, steps_);
  if (clock_) clock_->begin_step();
  if (!graphs_->captured()) rows_->memory().begin();
  int next = 0;  // micro-batch
  const auto sum_if_time = [&](int micro_batch) {
    if (sums_after(micro_batch)) run(Part::sums, micro_batch / context_.schedule.combine_every);
  };
  if (unfinished_ && rows_->micro_batches() > 0) {
    run(Part::turn, next);
    sum_if_time(next++);
    unfinished_ = false;
    expect_noised();
  } else {
    finish();
    run(Part::prologue, 0);
  }
  for (; next < rows_->micro_batches(); ++next) {
    run(Part::body, next);
    sum_if_time(next);
  }
  unfinished_ = true;
  // Until here an update of the step before may have read that step's.
  defers ? gradients_->set_knobs(learning_rate, steps_) : finish();
  if (clock_) clock_->end_step();
}

void Executor::run(Part part, int micro_batch) {
  if (clock_) clock_->ran(part, micro_batch);
  graphs_->run(part, micro_batch);
}

bool Executor::sums_after(int micro_batch) const {
  return context_.schedule.sums_after(micro_batch, rows_->micro_batches());
}

void Executor::finish() {
  if (!unfinished_) return;
  StreamGuard guard(context_.compute);
  run(Part::tail, 0);
  unfinished_ = false;
  expect_noised();
}

// A captured update was counted when it was captured.
void Executor::expect_noised() const {
  if (gradients_->clip() && !graphs_->captured()) gradients_->expect_noised();
}

void Executor::wait() {
  synchronize(context_.device);
}

Marker Executor::mark() {
  StreamGuard guard(context_.compute);
  Marker marker = Marker::timed(context_.device);
  marker.record();
  return marker;
}

double Executor::loss_sum() {
  return gradients_->read_loss_sum();
}

double Executor::grad_norm() {
  return gradients_->read_grad_norm();
}

void Executor::set_clip_norms(const std::vector<double>& clip_norms) {
  VEIL_CHECK(gradients_->clip(), "a clip norm for a step that is not private");
  StreamGuard guard(context_.compute);
  gradients_->clip()->set_clip_norms(clip_norms);
}

void Executor::silence_noise(bool silent) {
  VEIL_CHECK(gradients_->clip(), "a step that is not private has no noise");
  gradients_->clip()->silence(silent);
}

Executor::ClipFacts Executor::clip_facts() {
  VEIL_CHECK(gradients_->clip(), "a step that is not private counts nothing");
  StreamGuard guard(context_.compute);
  const ClipTally tally = gradients_->clip()->tally();
  // Without a sample there was no micro-batch, and what lies there is of an earlier C.
  if (tally.samples > 0) gradients_->clip()->expect_clipped(gradients_->coefficient_place());
  return {static_cast<int64_t>(tally.samples), static_cast<int64_t>(tally.bad_samples),
          tally.clip_count};
}

Tensor Executor::squared_norms() {
  VEIL_CHECK(gradients_->clip(), "a step that is not private has no per-sample norms");
  StreamGuard guard(context_.compute);
  return gradients_->clip()->squared_norms().cpu();
}

Tensor Executor::coefficients() {
  VEIL_CHECK(gradients_->clip(), "a step that is not private has no coefficients");
  StreamGuard guard(context_.compute);
  return gradients_->clip()->coefficient_values().cpu();
}

StepTime Executor::read_times() {
  VEIL_CHECK(clock_, "times are read but were not taken");
  return clock_->read();
}

const std::vector<ObservedRow>& Executor::memory_rows() const {
  return rows_->memory().rows();
}

Evaluation Executor::evaluate(const Batch& samples) {
  finish();
  return rows_->evaluate(samples);
}

Tensor Executor::parameter(ParamId id) {
  finish();
  return StoredState(context_, units_).parameter(id);
}

std::vector<Executor::StatePiece> Executor::state() {
  finish();
  return StoredState(context_, units_).pieces();
}

void Executor::restore(int64_t steps, const ReadState& read) {
  finish();
  StoredState(context_, units_).restore(read);
  steps_ = steps;
}

Tensor Executor::summed_gradient(int unit) {
  UnitTensors& u = units_[unit];
  const Schedule& schedule = context_.schedule;
  const UnitLayout& layout = context_.unit(unit);
  const Space space = space_of(context_.device);
  const auto sum_of = [&](int64_t numel) {
    return Buffer{BufferRole::grad_shard, unit, numel * dtype_bytes(schedule.grad_shard_dtype),
                  Category::gradients, space};
  };
  // What the update sums itself is summed here.
  if (u.received.defined()) {
    units_.create(sum_of(layout.shard_numel));
    u.grad_shard.zero_();
    gradients_->combine({.kind = OpKind::combine, .unit = unit, .use = GradUse::clip});
  }
  // Summed over the micro-batches; whether over the ranks too, the schedule says.
  const bool summed =
      !schedule.reduces || u.reduced.defined() ||
      (u.grad_shard.defined() && !u.grad.defined() && u.grad_shard.numel() == layout.shard_numel);
  if (!u.grad.defined() && !u.grad_shard.defined()) units_.create(sum_of(layout.padded_numel));
  if (u.sample_grads.defined() && !schedule.accumulates_whole)
    gradients_->combine({.kind = OpKind::combine, .unit = unit, .use = GradUse::clip});
  Tensor flat = u.grad.defined() ? u.grad : u.grad_shard;
  const bool reduced_in_place = schedule.reduces &&
                                context_.options.step.strategy == Strategy::ddp &&
                                !schedule.accumulates_whole;
  if (summed && schedule.reduces) {
    Tensor whole = empty_tensor({layout.padded_numel}, flat.scalar_type(), context_.device);
    context_.own_part(whole, unit).copy_(flat);
    context_.ranks.gather->all_gather(context_.own_part(whole, unit), whole)->wait();
    flat = whole;
  } else if (!summed && !reduced_in_place) {
    context_.ranks.reduce->all_reduce(flat)->wait();
  }
  wait();
  return flat;
}

std::vector<Tensor> Executor::gradients() {
  finish();
  StreamGuard guard(context_.compute);
  rows_->run_part(Part::prologue, 0);
  for (int m = 0; m < rows_->micro_batches(); ++m) {
    rows_->run_part(Part::body, m);
    if (sums_after(m)) rows_->run_part(Part::sums, 0);
  }
  // What a private step leaves to its tail.
  for (const Op& op : context_.schedule.part(Part::tail)) {
    if (op.use == GradUse::clip && op.kind != OpKind::coefficients) rows_->run_alone(op);
  }
  wait();
  std::vector<Tensor> found(context_.shape.params.size());
  for (int u = 0; u < units_.count(); ++u) {
    const bool frozen = context_.unit(u).frozen;
    const Tensor flat = frozen ? Tensor() : summed_gradient(u);
    for (const ParamSlot& slot : context_.unit(u).slots) {
      const ParamShape& param = context_.shape.params[slot.param];
      found[slot.param] =
          frozen ? at::zeros(param.dims, at::TensorOptions(context_.schedule.grad_dtype))
                 : flat.narrow(0, slot.offset, slot.numel).view(param.dims).cpu().clone();
    }
  }
  rows_->drop_step_buffers();
  return found;
}

}  // namespace veil
