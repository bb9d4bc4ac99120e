#include "train/executor.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/clip_scale.h"
#include "kernels/random.h"
#include "kernels/squared_norm.h"
#include "train/clip_state.h"
#include "train/executor_state.h"

namespace veil {
const NameTable<GraphMode>& names(GraphMode) {
  static const NameTable<GraphMode> table = {
      {GraphMode::automatic, "auto"}, {GraphMode::on, "on"}, {GraphMode::off, "off"}};
  return table;
}

Executor::UnitParams::UnitParams(const ModelShape& shape, const Layout& layout)
    : shape_(shape), layout_(layout), views_(shape.params.size()), flat_(layout.units.size()) {}

void Executor::UnitParams::bind(int unit, const Tensor& flat) {
  flat_[unit] = flat;
  for (const ParamSlot& slot : layout_.units[unit].slots) {
    views_[slot.param] =
        flat.defined() ? flat.narrow(0, slot.offset, slot.numel).view(shape_.params[slot.param].dims) : Tensor();
  }
}

const Tensor& Executor::UnitParams::operator[](ParamId id) const {
  VEIL_CHECK(views_[id].defined(), "{} is read while it is not gathered", shape_.params[id].name);
  return views_[id];
}

Tensor Executor::UnitParams::joined(ParamId first, int count) const {
  const int u = layout_.unit_of_param[first];
  VEIL_CHECK(flat_[u].defined(), "{} is read while it is not gathered", shape_.params[first].name);
  const std::vector<int64_t>& dims = shape_.params[first].dims;
  int64_t numel = 0;
  for (int i = 0; i < count; ++i) numel += shape_.params[first + i].numel();
  const int64_t columns = shape_.params[first].numel() / dims[0];
  const Tensor rows = flat_[u].narrow(0, layout_.offset_of_param[first], numel);
  return dims.size() == 1 ? rows : rows.view({numel / columns, columns});
}

Executor::Timers::Row& Executor::Timers::row(Part part, int micro_batch, int index, const Schedule& schedule) {
  auto& runs = parts[static_cast<int>(part)];
  if (runs.size() <= static_cast<size_t>(micro_batch)) runs.resize(static_cast<size_t>(micro_batch) + 1);
  auto& rows = runs[micro_batch];
  if (rows.empty()) rows.resize(schedule.part(part).size());
  return rows[index];
}

Executor::Executor(const Model& model, int64_t batch, const ExecutorOptions& options, Device device, Batch data,
                   Ranks ranks)
    : model_(model),
      options_(options),
      device_(device),
      shape_(model.shape(batch, options.step.compute, device.is_cuda())),
      data_(std::move(data)),
      ranks_(std::move(ranks)),
      compute_(Stream::create(device)),
      copy_(Stream::create(device)),
      rule_(update_rule(options.optimizer, options.seed)),
      micro_batches_(options.step.micro_batches) {
  // Products on CPU go to BLAS: oneDNN reorders its operands into memory that no row of the schedule asked for.
  at::globalContext().setUserEnabledMkldnn(false);
  options_.step.optimizer = options.optimizer.kind;
  options_.step.on_gpu = device.is_cuda();
  VEIL_CHECK(options_.step.clip.has_value() == options_.privacy.has_value(),
             "a clip plan without a private step, or the reverse");
  schedule_ = build_schedule(shape_, options_.step);
  options_.step = schedule_.options;
  VEIL_CHECK(options_.step.world == 1 || (ranks_.gather && ranks_.reduce), "a world of {} without communicators",
             options_.step.world);
  VEIL_CHECK(!ranks_.gather || ranks_.gather->size() == options_.step.world, "the communicator's world is another one");
  if (options_.time_rows) {
    timers_ = std::make_unique<Timers>();
    timers_->step_begin = Marker::timed(device_);
    timers_->step_end = Marker::timed(device_);
    if (options_.time_reports) timed_sink_ = std::make_unique<TimedSink>(*timers_, device_);
    for (Communicator* lane : {ranks_.gather.get(), ranks_.reduce.get()}) {
      if (lane) lane->set_timing(true);
    }
  }
  if (std::any_of(shape_.params.begin(), shape_.params.end(), [](const ParamShape& param) { return param.frozen; })) {
    trained_sink_ = std::make_unique<TrainedSink>(shape_.params);
    CategoryScope scope(Category::data);
    if (!options_.privacy) no_noise_ = empty_tensor({2}, at::kDouble, device_).zero_();
  }
  synchronize(device_);  // the data may have been made on another stream
  StreamGuard guard(compute_);
  allocate_resident();
  initialise();
  flow_.resize(shape_.blocks.size());
  flow_grad_.resize(shape_.blocks.size());
  tape_.resize(shape_.blocks.size());
  if (options_.privacy) return;
  std::vector<int64_t> numel;
  for (const ParamShape& param : shape_.params) numel.push_back(param.numel());
  sink_ = std::make_unique<SummedSink>(
      std::move(numel), schedule_.accumulates_whole,
      [this](ParamId id, int64_t first, int64_t count) { return gradient_target(id, first, count); });
}

Executor::~Executor() {
  try {
    wait();
  } catch (const std::exception&) {  // a failed device has already been reported where the work was issued
  }
}

DType Executor::dtype_of(BufferRole role) const {
  switch (role) {
    case BufferRole::params:
    case BufferRole::staged_params:
      return options_.step.storage;
    case BufferRole::optimizer:
    case BufferRole::staged_optimizer:
      return options_.step.optimizer_state();
    case BufferRole::whole:
      return options_.step.compute;
    case BufferRole::grad:
      return schedule_.grad_dtype;
    case BufferRole::grad_shard:
      return schedule_.grad_shard_dtype;
    case BufferRole::wire:
    case BufferRole::reduced:
      return options_.step.reduce;
    case BufferRole::sample_grads:
      return options_.step.compute;
    default:
      check_failed(__FILE__, __LINE__, "not reached", fmt::format("{} has no type of its own", name_of(role)));
  }
}

Tensor& Executor::slot(const Buffer& buffer) {
  Unit& unit = units_[buffer.index];
  switch (buffer.role) {
    case BufferRole::params:
      return unit.params;
    case BufferRole::optimizer:
      return unit.optimizer;
    case BufferRole::whole:
      return unit.whole;
    case BufferRole::grad:
      return unit.grad;
    case BufferRole::wire:
      return unit.wire;
    case BufferRole::grad_shard:
      return unit.grad_shard;
    case BufferRole::reduced:
      return unit.reduced;
    case BufferRole::sample_grads:
      return unit.sample_grads;
    case BufferRole::staged_params:
      return unit.staged_params;
    case BufferRole::staged_optimizer:
      return unit.staged_optimizer;
    default:
      check_failed(__FILE__, __LINE__, "not reached", fmt::format("{} is not a unit's buffer", name_of(buffer.role)));
  }
}

void Executor::create(const Buffer& buffer) {
  if (made_by_blocks(buffer.role)) return;
  Tensor& tensor = slot(buffer);
  VEIL_CHECK(!tensor.defined(), "{}.{} is created twice", name_of(buffer.role), buffer.index);
  const DType dtype = dtype_of(buffer.role);
  const bool host = buffer.space != space_of(device_);
  CategoryScope scope(buffer.category);
  tensor = empty_tensor({buffer.bytes / dtype_bytes(dtype)}, dtype, host ? cpu_device() : device_,
                        buffer.space == Space::pinned);
  if (buffer.role == BufferRole::whole) params_->bind(buffer.index, tensor);
  // The sink writes the parameters' places only: what lies between them must not be garbage on its way through a sum.
  if (buffer.role == BufferRole::grad || buffer.role == BufferRole::grad_shard) {
    const UnitLayout& unit = schedule_.layout.units[buffer.index];
    if (tensor.numel() != unit.padded_numel) return;
    int64_t end = 0;
    for (const ParamSlot& param : unit.slots) {
      if (param.offset > end) tensor.narrow(0, end, param.offset - end).zero_();
      end = param.offset + param.numel;
    }
    if (unit.padded_numel > end) tensor.narrow(0, end, unit.padded_numel - end).zero_();
  }
}

void Executor::free(const Buffer& buffer) {
  switch (buffer.role) {
    case BufferRole::flow:
      flow_[buffer.index] = {};
      return;
    case BufferRole::flow_grad:
      flow_grad_[buffer.index] = {};
      return;
    case BufferRole::tape:
    case BufferRole::kept:
    case BufferRole::booked:
    case BufferRole::tied_rows:
      return;  // dropped with the operation that reads them last
    case BufferRole::whole:
      params_->bind(buffer.index, {});
      break;
    default:
      break;
  }
  Tensor& tensor = slot(buffer);
  VEIL_CHECK(tensor.defined(), "{}.{} is freed but does not live", name_of(buffer.role), buffer.index);
  tensor.reset();
}

void Executor::allocate_resident() {
  units_.resize(schedule_.layout.units.size());
  params_ = std::make_unique<UnitParams>(shape_, schedule_.layout);
  input_ = data_;
  for (const Buffer& buffer : schedule_.resident) {
    CategoryScope scope(buffer.category);
    if (buffer.role == BufferRole::data) continue;
    if (buffer.role == BufferRole::norms) {
      clip_ = make_clip_state();
      continue;
    }
    if (buffer.role == BufferRole::input) {
      auto like = [&](const Tensor& samples) {
        std::vector<int64_t> dims = samples.sizes().vec();
        dims[0] = shape_.batch;
        return empty_tensor(dims, samples.scalar_type(), device_);
      };
      input_ = {like(data_.inputs), like(data_.targets)};
      if (data_.conditions.defined()) input_.conditions = like(data_.conditions);
    } else if (buffer.role == BufferRole::knobs) {
      knobs_ = empty_tensor({kKnobsBytes / dtype_bytes(at::kDouble)}, at::kDouble, device_);
      knobs_.zero_();
    } else {
      create(buffer);
      slot(buffer).zero_();
    }
  }
  const bool bound = schedule_.access == ParamAccess::resident || schedule_.access == ParamAccess::refreshed;
  for (size_t u = 0; bound && u < units_.size(); ++u) params_->bind(static_cast<int>(u), units_[u].params);
}

void Executor::initialise() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const int64_t shard = schedule_.layout.units[u].shard_numel;
    initialise(static_cast<int>(u), units_[u].params, schedule_.whole_params ? 0 : ranks_.rank() * shard);
  }
  synchronize(device_);
}

// Fills the part of a unit that `stored` holds; `first` is the place of its first element in the unit.
void Executor::initialise(int unit, const Tensor& stored, int64_t first) {
  const UnitLayout& layout = schedule_.layout.units[unit];
  for (const ParamSlot& param : layout.slots) {
    const int64_t begin = std::max(param.offset, first),
                  end = std::min(param.offset + param.numel, first + stored.numel());
    if (begin >= end) continue;
    const Tensor piece = stored.narrow(0, begin - first, end - begin);
    const Init& init = shape_.params[param.param].init;
    if (options_.initial && options_.initial(param.param, begin - param.offset, piece)) continue;
    switch (init.kind) {
      case Init::Kind::uniform:
        fill_uniform(piece, init.scale, options_.seed, RandomDomain::parameters, layout.base + begin);
        break;
      case Init::Kind::normal:
        fill_normal(piece, init.scale, options_.seed, RandomDomain::parameters, layout.base + begin);
        break;
      case Init::Kind::constant:
        piece.fill_(init.scale);
        break;
    }
  }
}

Tensor Executor::own_part(const Tensor& flat, int unit) const {
  const int64_t shard = schedule_.layout.units[unit].shard_numel;
  return flat.numel() == shard ? flat : flat.narrow(0, ranks_.rank() * shard, shard);
}

Tensor Executor::gradient_target(ParamId id, int64_t first, int64_t count) {
  const int u = schedule_.layout.unit_of_param[id];
  const Tensor& flat = units_[u].grad.defined() ? units_[u].grad : units_[u].grad_shard;
  return flat.narrow(0, schedule_.layout.offset_of_param[id] + first, count);
}

std::vector<Tensor> Executor::trained_parts(const Tensor& flat, int unit) const {
  if (!trained_sink_) return {flat};
  const UnitLayout& layout = schedule_.layout.units[unit];
  const int64_t first = flat.numel() == layout.padded_numel ? 0 : ranks_.rank() * layout.shard_numel;
  std::vector<Tensor> parts;
  for (const ParamSlot& slot : layout.slots) {
    const int64_t begin = std::max(slot.offset, first), end = std::min(slot.offset + slot.numel, first + flat.numel());
    if (begin < end && !shape_.params[slot.param].frozen) parts.push_back(flat.narrow(0, begin - first, end - begin));
  }
  return parts;
}

// What the update of a unit reads: the sum over samples and ranks.
const Tensor& Executor::update_gradient(int unit) const {
  const Unit& u = units_[unit];
  const bool whole_on_the_wire =
      u.wire.defined() && u.wire.numel() == u.grad_shard.numel();  // ddp reduces the wire's copy in place
  return whole_on_the_wire ? u.wire : u.grad_shard;
}

void Executor::wait() {
  synchronize(device_);
}

Marker Executor::mark() {
  StreamGuard guard(compute_);
  Marker marker = Marker::timed(device_);
  marker.record();
  return marker;
}

double Executor::loss_sum() {
  StreamGuard guard(compute_);
  return knobs_.narrow(0, kLossKnob, 1).cpu().data_ptr<double>()[0];
}

double Executor::grad_norm() {
  VEIL_CHECK(options_.step.grad_norm, "the gradient's norm is read but was not taken");
  StreamGuard guard(compute_);
  return std::sqrt(knobs_.narrow(0, kSquaredNormKnob, 1).cpu().data_ptr<double>()[0]) / samples_in_step();
}

double Executor::samples_in_step() const {
  return static_cast<double>(shape_.batch) * options_.step.micro_batches * options_.step.world;
}

// What the sum over the logical batch is divided by: of a private step the expected batch, whatever was drawn (design, privacy invariant 1).
double Executor::update_divisor() const {
  return clip_ ? clip_->expected_batch() : samples_in_step();
}

void Executor::set_knobs(double learning_rate) {
  const UpdateKnobs knobs = knobs_for_step(options_.optimizer, learning_rate, steps_, 1.0 / update_divisor());
  if (clip_) clip_->set_noise(steps_);
  const double values[] = {knobs.learning_rate, knobs.scale, knobs.bias_correction1, knobs.bias_correction2,
                           knobs.step,          0,           options_.max_grad_norm};
  constexpr int64_t count = sizeof values / sizeof *values;
  Tensor host = empty_tensor({count}, at::kDouble, cpu_device());
  std::memcpy(host.data_ptr<double>(), values, sizeof values);
  // Not pinned: the driver has taken the values when the call returns, so the host need not wait.
  knobs_.narrow(0, 0, count).copy_(host, /*non_blocking=*/true);
}

void Executor::load(const Batch& samples) {
  StreamGuard guard(compute_);
  if (options_.step.varying) {
    const int64_t rows = samples.inputs.defined() ? samples.inputs.size(0) : 0;
    VEIL_CHECK(rows % shape_.batch == 0, "{} samples are no whole micro-batches of {}", rows, shape_.batch);
    micro_batches_ = static_cast<int>(rows / shape_.batch);
    data_ = samples;
    return;
  }
  data_.inputs.copy_(samples.inputs, /*non_blocking=*/true);
  data_.targets.copy_(samples.targets, /*non_blocking=*/true);
  if (data_.conditions.defined()) data_.conditions.copy_(samples.conditions, /*non_blocking=*/true);
  if (samples.counted.defined()) {
    VEIL_CHECK(clip_, "only a private step leaves samples out");
    if (!data_.counted.defined()) data_.counted = empty_tensor(samples.counted.sizes(), at::kByte, device_);
    data_.counted.copy_(samples.counted, /*non_blocking=*/true);
    if (options_.step.micro_batches == 1) clip_->counted().copy_(data_.counted, /*non_blocking=*/true);
  }
}

void Executor::step(double learning_rate) {
  VEIL_CHECK(graph_state_ != "not prepared", "step before prepare");
  StreamGuard guard(compute_);
  ++steps_;
  set_knobs(learning_rate);
  if (timers_) timers_->step_begin.record();
  run_step();
  if (timers_) timers_->step_end.record();
}

void Executor::run_step() {
  auto run = [&](Part part, int micro_batch) {
    auto& graph = graphs_[static_cast<int>(part)];
    if (!graph) {
      run_part(part, micro_batch);
      return;
    }
    if (part == Part::body && (options_.step.micro_batches > 1 || options_.step.varying))
      run_compute(schedule_.part(part)[0], micro_batch);  // load: the host chooses
    graph->replay();
    for (const ObservedRow& row : observed_) {
      if (row.part != part) continue;
      for (int s = 0; s < kSpaces; ++s) ledger::note_peak(static_cast<Space>(s), row.bytes[s].peak);
    }
  };
  if (!graphs_[0]) begin_observing();
  run(Part::prologue, 0);
  for (int m = 0; m < micro_batches_; ++m) run(Part::body, m);
  run(Part::tail, 0);
}

void Executor::run_part(Part part, int micro_batch, bool skip_load) {
  const std::vector<Op>& ops = schedule_.part(part);
  pending_.assign(ops.size(), {});
  if (part == Part::body && sink_) sink_->begin_body();
  if (part == Part::body && clip_) clip_->begin_body(input_.inputs);
  second_pass_ = loss_counted_ = false;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (skip_load && ops[i].kind == OpKind::load) continue;
    run_op(part, static_cast<int>(i), micro_batch);
  }
  join(part);
}

// Step, "Ordering and freeing" (step/schedule.h): at the end of a part all lanes have been waited for.
void Executor::join(Part part) {
  const std::vector<Op>& ops = schedule_.part(part);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const PendingPtr& pending : pending_[i]) pending->wait();
  }
}

void Executor::run_op(Part part, int index, int micro_batch) {
  const Op& op = schedule_.part(part)[index];
  Timers::Row* timer = timers_ ? &timers_->row(part, micro_batch, index, schedule_) : nullptr;
  if (op.lane == Lane::compute) {
    for (int earlier : op.after) {
      for (const PendingPtr& pending : pending_[earlier]) pending->wait();
    }
    if (timer) {
      if (timer->begin.empty()) timer->begin = Marker::timed(device_), timer->end = Marker::timed(device_);
      timer->begin.record();
      timer->reported = 0;
      timers_->running = timed_sink_ ? timer : nullptr;
    }
    for (const Buffer& buffer : op.creates) create(buffer);
    run_compute(op, micro_batch);
    for (const Buffer& buffer : op.frees) free(buffer);
    if (timer) timer->end.record(), timers_->running = nullptr;
  } else {
    for (const Buffer& buffer : op.creates) create(buffer);
    std::vector<PendingPtr> others;
    for (int earlier : op.after) others.insert(others.end(), pending_[earlier].begin(), pending_[earlier].end());
    if (others.empty()) {
      pending_[index] = run_lane(op);
    } else {
      // It waits for another lane too: issued from a stream beside compute, so that compute goes on.
      Marker now = Marker::ordering(device_);
      now.record();
      StreamGuard beside(copy_);
      now.wait();
      for (const PendingPtr& pending : others) pending->wait();
      pending_[index] = run_lane(op);
    }
    if (timer) timer->pending = pending_[index];
  }
  if (options_.watch_memory) observe(part, index);
}

void Executor::begin_observing() {
  observed_.clear();
  if (!options_.watch_memory) return;
  for (Space space : {space_of(device_), Space::pinned}) ledger::take_row(space);
}

void Executor::observe(Part part, int index) {
  ObservedRow row{part, index, {}};
  for (Space space : {space_of(device_), Space::pinned}) {
    row.bytes[static_cast<int>(space)] = ledger::take_row(space);
    ledger::check(space, fmt::format("{} row {}", name_of(part), index));
  }
  observed_.push_back(row);
}

void Executor::run_compute(const Op& op, int micro_batch) {
  CategoryScope scope(Category::activations);
  auto input_of = [&](int block) { return block == 0 ? Flow{input_.inputs, input_.conditions} : flow_[block - 1]; };
  switch (op.kind) {
    case OpKind::load:
      input_.inputs.copy_(data_.inputs.narrow(0, micro_batch * shape_.batch, shape_.batch));
      input_.targets.copy_(data_.targets.narrow(0, micro_batch * shape_.batch, shape_.batch));
      if (input_.conditions.defined())
        input_.conditions.copy_(data_.conditions.narrow(0, micro_batch * shape_.batch, shape_.batch));
      if (clip_ && data_.counted.defined())
        clip_->counted().copy_(data_.counted.narrow(0, micro_batch * shape_.batch, shape_.batch));
      return;
    case OpKind::zero:
      knobs_.narrow(0, kLossKnob, 1).zero_();
      if (clip_) clip_->clear_facts();
      for (const Buffer& buffer : op.creates) slot(buffer).zero_();
      return;
    case OpKind::gather:
      cast_own_shard(op.unit);
      return;
    case OpKind::forward: {
      Tape tape;
      flow_[op.block] = model_.blocks[op.block]->forward(*params_, input_of(op.block), tape);
      if (options_.step.checkpointing == Checkpointing::none) {
        tape_[op.block] = std::move(tape);
      } else if (options_.step.checkpointing == Checkpointing::selective) {
        tape_[op.block].kept = std::move(tape.kept);
      }
      return;
    }
    case OpKind::recompute: {
      Flow out = model_.blocks[op.block]->recompute(*params_, input_of(op.block), tape_[op.block]);
      if (shape_.blocks[op.block].keeps_output) flow_[op.block] = out;
      return;
    }
    case OpKind::loss:
      run_loss(op);
      return;
    case OpKind::backward: {
      GradSink& sink = sink_for(op);
      Flow grad =
          model_.blocks[op.block]->backward(*params_, flow_grad_[op.block], tape_[op.block], sink, op.block > 0);
      if (op.block > 0) flow_grad_[op.block - 1] = std::move(grad);
      after_reports(op);
      return;
    }
    case OpKind::weight_grad:
      clip_->replay(op.block, tape_[op.block]);
      tape_[op.block] = {};
      return;
    case OpKind::combine:
      run_combine(op);
      return;
    case OpKind::norm:
      for (const Tensor& part : trained_parts(update_gradient(op.unit), op.unit))
        add_squared_norm(part, knobs_.narrow(0, kSquaredNormKnob, 1));
      return;
    case OpKind::coefficients:
      if (clip_) {
        clip_->coefficients(op.layer);
        second_pass_ = true;
      } else {
        clip_scale(knobs_);
      }
      return;
    case OpKind::update:
      run_update(op);
      return;
    case OpKind::release:
      return;
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("{} does not run on the compute lane", name_of(op.kind)));
  }
}

}  // namespace veil
