#include "engine/row_runner.h"

#include <algorithm>

#include "base/error.h"
#include "comm/call_place.h"

namespace veil {

void RowMemory::begin() {
  rows_.clear();
  if (!watches_) return;
  for (Space space : {space_of(device_), Space::pinned}) memory::take_row(space);
}

void RowMemory::observe(Part part, int index) {
  ObservedRow row{part, index, {}};
  for (Space space : {space_of(device_), Space::pinned}) {
    row.bytes[static_cast<int>(space)] = memory::take_row(space);
    memory::check(space, fmt::format("{} row {}", name_of(part), index));
  }
  rows_.push_back(row);
}

void RowMemory::note_peaks(Part part) const {
  for (const ObservedRow& row : rows_) {
    if (row.part != part) continue;
    for (int s = 0; s < kSpaces; ++s) memory::note_peak(static_cast<Space>(s), row.bytes[s].peak);
  }
}

namespace {

// Samples on a CPU as `device` copies them. From pinned memory a GPU copies without the host; for
// other memory the host would first wait for the micro-batch before.
Tensor copied_from(Device device, const Tensor& samples) {
  if (!device.is_cuda() || !samples.is_cpu()) return samples;
  CategoryScope scope(Category::data);
  const Tensor pinned =
      empty_tensor(samples.sizes(), samples.scalar_type(), cpu_device(), /*pinned=*/true);
  return pinned.copy_(samples);
}

}  // namespace

RowRunner::RowRunner(const ExecutorContext& context, UnitBuffers& units, Gradients& gradients,
                     RowClock* clock, Batch data)
    : context_(context),
      units_(units),
      gradients_(gradients),
      clock_(clock),
      lanes_(context, units, gradients.knobs(), gradients.clip()),
      memory_(context.device, context.options.watch_memory),
      data_(std::move(data)),
      input_(data_),
      flow_(context.shape.blocks.size()),
      flow_grad_(context.shape.blocks.size()),
      tape_(context.shape.blocks.size()),
      micro_batches_(context.options.step.micro_batches) {
  for (const Buffer& buffer : context.schedule.resident) {
    if (buffer.role != BufferRole::input) continue;
    CategoryScope scope(buffer.category);
    auto like = [&](const Tensor& samples) {
      std::vector<int64_t> dims = samples.sizes().vec();
      dims[0] = context.shape.batch;
      return empty_tensor(dims, samples.scalar_type(), context.device);
    };
    input_ = {like(data_.inputs), like(data_.targets)};
    if (data_.conditions.defined()) input_.conditions = like(data_.conditions);
  }
}

void RowRunner::load(const Batch& samples) {
  StreamGuard guard(context_.compute);
  const StepOptions& step = context_.options.step;
  const int64_t batch = context_.shape.batch;
  if (step.varying) {
    const int64_t rows = samples.inputs.defined() ? samples.inputs.size(0) : 0;
    VEIL_CHECK(rows % batch == 0, "{} samples are no whole micro-batches of {}", rows, batch);
    micro_batches_ = static_cast<int>(rows / batch);
    data_ = samples;
    return;
  }
  data_.inputs.copy_(samples.inputs, /*non_blocking=*/true);
  data_.targets.copy_(samples.targets, /*non_blocking=*/true);
  if (data_.conditions.defined()) data_.conditions.copy_(samples.conditions, /*non_blocking=*/true);
  if (samples.counted.defined()) {
    VEIL_CHECK(gradients_.clip(), "only a private step leaves samples out");
    if (!data_.counted.defined())
      data_.counted = empty_tensor(samples.counted.sizes(), at::kByte, context_.device);
    data_.counted.copy_(samples.counted, /*non_blocking=*/true);
    if (step.micro_batches == 1)
      gradients_.clip()->counted().copy_(data_.counted, /*non_blocking=*/true);
  }
}

void RowRunner::run_part(Part part, int micro_batch, bool skip_load) {
  const std::vector<Op>& ops = context_.schedule.part(part);
  pending_.assign(ops.size(), {});
  set_place(part, micro_batch);
  if (part == Part::body) gradients_.begin_body(input_.inputs);
  second_pass_ = loss_counted_ = false;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (skip_load && ops[i].kind == OpKind::load) continue;
    run_row(part, static_cast<int>(i), micro_batch);
  }
  join();
}

void RowRunner::set_place(Part part, int micro_batch) {
  if (part == Part::body || part == Part::turn)
    units_.set_place(micro_batch % context_.schedule.combine_every);
}

void RowRunner::run_load(int micro_batch) {
  CategoryScope scope(Category::activations);
  load_micro_batch(micro_batch);
}

void RowRunner::run_alone(const Op& op) {
  for (const Buffer& buffer : op.creates) units_.create(buffer);
  run_compute(op, 0);
}

void RowRunner::wait_for(const std::vector<int>& rows) {
  for (int row : rows) {
    for (const PendingPtr& pending : pending_[row]) pending->wait();
  }
}

// Step, "Ordering and freeing" (step/schedule.h): at the end of a part all lanes have been waited
// for.
void RowRunner::join() {
  for (const auto& row : pending_) {
    for (const PendingPtr& pending : row) pending->wait();
  }
}

void RowRunner::run_row(Part part, int index, int micro_batch) {
  const Op& op = context_.schedule.part(part)[index];
  if (op.lane == Lane::compute) {
    wait_for(op.after);
    if (clock_) clock_->begin_row(part, micro_batch, index);
    for (const Buffer& buffer : op.creates) units_.create(buffer);
    // The step before has made its last sums.
    if (part == Part::turn && op.kind == OpKind::zero) gradients_.begin_body(input_.inputs);
    run_compute(op, micro_batch);
    for (const Buffer& buffer : op.frees) free(buffer);
    if (clock_) clock_->end_row();
  } else {
    const CallPlaceScope place(name_of(part), index, name_of(op.kind),
                               op.unit < 0 ? "" : context_.schedule.layout.units[op.unit].name);
    for (const Buffer& buffer : op.creates) units_.create(buffer);
    run_lane_row(op, index);
    if (clock_) clock_->lane_row(part, micro_batch, index, pending_[index]);
  }
  if (memory_.watches()) memory_.observe(part, index);
}

void RowRunner::run_lane_row(const Op& op, int index) {
  const bool timed = clock_ != nullptr;
  std::vector<PendingPtr> others;
  for (int earlier : op.after)
    others.insert(others.end(), pending_[earlier].begin(), pending_[earlier].end());
  if (others.empty()) {
    pending_[index] = lanes_.run(op, timed);
    return;
  }
  // It waits for another lane too: issued from a stream next to compute, so that compute continues.
  Marker now = Marker::ordering(context_.device);
  now.record();
  StreamGuard beside(context_.copy);
  now.wait();
  for (const PendingPtr& pending : others) pending->wait();
  pending_[index] = lanes_.run(op, timed);
}

void RowRunner::free(const Buffer& buffer) {
  switch (buffer.role) {
    case BufferRole::flow:
      flow_[buffer.index] = {};
      return;
    case BufferRole::flow_grad:
      flow_grad_[buffer.index] = {};
      return;
    case BufferRole::tape:
    case BufferRole::kept:
    case BufferRole::reported:
    case BufferRole::booked:
    case BufferRole::tied_rows:
      return;  // dropped with the operation that reads them last
    default:
      units_.free(buffer);
  }
}

void RowRunner::drop_step_buffers() {
  synchronize(context_.device);
  units_.drop_created();
  for (size_t b = 0; b < tape_.size(); ++b) tape_[b] = {}, flow_[b] = {}, flow_grad_[b] = {};
  if (gradients_.clip()) gradients_.clip()->drop();
  pending_.clear();
}

Flow RowRunner::input_of(int block) const {
  return block == 0 ? Flow{input_.inputs, input_.conditions} : flow_[block - 1];
}

void RowRunner::run_compute(const Op& op, int micro_batch) {
  CategoryScope scope(Category::activations);
  const Checkpointing checkpointing = context_.options.step.checkpointing;
  switch (op.kind) {
    case OpKind::load:
      load_micro_batch(micro_batch);
      return;
    case OpKind::zero:
      gradients_.zero(op);
      return;
    case OpKind::gather:
      units_.cast_own_shard(op.unit);
      return;
    case OpKind::forward: {
      Tape tape;
      flow_[op.block] =
          context_.model.blocks[op.block]->forward(units_.params(), input_of(op.block), tape);
      if (op.block < context_.schedule.lowest_trained) return;  // nothing is read again
      if (checkpointing == Checkpointing::none) {
        tape_[op.block] = std::move(tape);
      } else if (checkpointing == Checkpointing::selective) {
        tape_[op.block].kept = std::move(tape.kept);
      }
      return;
    }
    case OpKind::recompute: {
      Flow out = context_.model.blocks[op.block]->recompute(units_.params(), input_of(op.block),
                                                            tape_[op.block]);
      if (context_.shape.blocks[op.block].keeps_output) flow_[op.block] = out;
      return;
    }
    case OpKind::loss:
      run_loss(op);
      return;
    case OpKind::backward:
      run_backward(op);
      return;
    case OpKind::weight_grad:
      gradients_.clip()->replay(op.block, tape_[op.block]);
      tape_[op.block] = {};
      return;
    case OpKind::combine:
      gradients_.combine(op);
      return;
    case OpKind::norm:
      gradients_.add_norm(op);
      return;
    case OpKind::coefficients:
      gradients_.coefficients(op);
      second_pass_ = gradients_.clip() != nullptr;
      return;
    case OpKind::update:
      gradients_.update(op);
      return;
    case OpKind::release:
      return;
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("{} does not run on the compute lane", name_of(op.kind)));
  }
}

void RowRunner::load_micro_batch(int micro_batch) {
  const int64_t batch = context_.shape.batch;
  auto own = [&](const Tensor& samples) { return samples.narrow(0, micro_batch * batch, batch); };
  const auto copy = [&](const Tensor& to, const Tensor& samples) {
    to.copy_(copied_from(context_.device, own(samples)), /*non_blocking=*/true);
  };
  copy(input_.inputs, data_.inputs);
  copy(input_.targets, data_.targets);
  if (input_.conditions.defined()) copy(input_.conditions, data_.conditions);
  if (gradients_.clip() && data_.counted.defined())
    copy(gradients_.clip()->counted(), data_.counted);
}

GradSink& RowRunner::sink_for(const Op& op) {
  const auto block = static_cast<size_t>(op.block);
  GradSink& sink = gradients_.sink(op, block < tape_.size() ? &tape_[block] : nullptr);
  return clock_ ? clock_->timed(sink) : sink;
}

void RowRunner::run_loss(const Op& op) {
  const int last = static_cast<int>(context_.shape.blocks.size()) - 1;
  ClipState* clip = gradients_.clip();
  // Of two evaluations the first one counts.
  const bool again = op.use == GradUse::clip || (op.use == GradUse::none && loss_counted_);
  const Tensor sum = again ? clip->discarded_loss() : gradients_.loss_sum();
  loss_counted_ = true;
  Batch batch = input_;
  if (clip) batch.counted = clip->counted();
  Flow grad = context_.model.loss->run(units_.params(), flow_[last], batch, sum, sink_for(op));
  const bool made_before = op.creates.empty() || op.creates.front().role != BufferRole::flow_grad;
  if (!made_before) flow_grad_[last] = std::move(grad);
  after_reports(op);
}

void RowRunner::run_backward(const Op& op) {
  GradSink& sink = sink_for(op);
  const bool goes_on = op.block > context_.schedule.lowest_trained;
  Flow grad = context_.model.blocks[op.block]->backward(units_.params(), flow_grad_[op.block],
                                                        tape_[op.block], sink, goes_on);
  if (goes_on) flow_grad_[op.block - 1] = std::move(grad);
  after_reports(op);
}

// A block's reports have been made: kept gradients get their norms, and what no later pass reads is
// let go.
void RowRunner::after_reports(const Op& op) {
  const Schedule& schedule = context_.schedule;
  const StepOptions& step = context_.options.step;
  if (op.use == GradUse::keep || op.use == GradUse::book) {
    const auto norm = [&] {
      if (op.use == GradUse::book) return gradients_.clip()->finish_norms();
      gradients_.clip()->norm_kept(op.block, [&](int unit) { return units_.kept(unit); });
    };
    clock_ ? clock_->time_report(norm) : norm();
  }
  if (op.kind != OpKind::backward) return;
  const auto block = static_cast<size_t>(op.block);
  const bool books = op.use == GradUse::book, remade = books && schedule.remakes_tape[block];
  const bool frees_tape = std::any_of(op.frees.begin(), op.frees.end(), [](const Buffer& buffer) {
    return buffer.role == BufferRole::tape;
  });
  if (books && !remade && !frees_tape && !schedule.books_nothing[block]) return;
  Tape& tape = tape_[block];
  const bool comes_again =
      remade ||
      (gradients_.clip() && step.clip->pass == privacy::PassKind::two_pass && !second_pass_);
  if (!comes_again || step.checkpointing == Checkpointing::full) {
    tape = {};
  } else if (step.checkpointing == Checkpointing::selective) {
    tape = {.kept = std::move(tape.kept)};
  }
}

Evaluation RowRunner::evaluate(const Batch& samples) {
  StreamGuard guard(context_.compute);
  // a graph's rows are read by markers that nothing may replace
  RowClock* const clock = std::exchange(clock_, nullptr);
  const Batch training = input_;
  {
    CategoryScope scope(Category::data);
    input_ = samples.each([&](const Tensor& tensor) { return tensor.to(context_.device); });
  }
  VEIL_CHECK(input_.inputs.size(0) == context_.shape.batch,
             "evaluation of {} samples, a micro-batch has {}", input_.inputs.size(0),
             context_.shape.batch);
  // The rows that lead to the loss; what backward would want is let go at once.
  run_part(Part::prologue, 0);
  const std::vector<Op>& body = context_.schedule.part(Part::body);
  pending_.assign(body.size(), {});
  Evaluation result;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i].kind == OpKind::load) continue;
    if (body[i].kind == OpKind::loss) {
      wait_for(body[i].after);
      result = context_.model.loss->evaluate(units_.params(), flow_.back(), input_);
      break;
    }
    run_row(Part::body, static_cast<int>(i), 0);
    if (body[i].kind == OpKind::forward) tape_[body[i].block] = {};
  }
  join();
  result.losses = result.losses.cpu();
  if (result.correct.defined()) result.correct = result.correct.cpu();
  drop_step_buffers();
  input_ = training;
  clock_ = clock;
  return result;
}

}  // namespace veil
