#include "engine/unit_buffers.h"

#include <algorithm>

#include "base/error.h"

namespace veil {

UnitParams::UnitParams(const ModelShape& shape, const Layout& layout)
    : shape_(shape), layout_(layout), views_(shape.params.size()), flat_(layout.units.size()) {}

void UnitParams::bind(int unit, const Tensor& flat) {
  flat_[unit] = flat;
  for (const ParamSlot& slot : layout_.units[unit].slots) {
    views_[slot.param] =
        flat.defined()
            ? flat.narrow(0, slot.offset, slot.numel).view(shape_.params[slot.param].dims)
            : Tensor();
  }
}

const Tensor& UnitParams::operator[](ParamId id) const {
  VEIL_CHECK(views_[id].defined(), "{} is read while it is not gathered", shape_.params[id].name);
  return views_[id];
}

Tensor UnitParams::joined(ParamId first, int count) const {
  const int u = layout_.unit_of_param[first];
  VEIL_CHECK(flat_[u].defined(), "{} is read while it is not gathered", shape_.params[first].name);
  const std::vector<int64_t>& dims = shape_.params[first].dims;
  int64_t numel = 0;
  for (int i = 0; i < count; ++i) numel += shape_.params[first + i].numel();
  const int64_t columns = shape_.params[first].numel() / dims[0];
  const Tensor rows = flat_[u].narrow(0, layout_.offset_of_param[first], numel);
  return dims.size() == 1 ? rows : rows.view({numel / columns, columns});
}

UnitBuffers::UnitBuffers(const ExecutorContext& context)
    : context_(context),
      units_(context.schedule.layout.units.size()),
      params_(context.shape, context.schedule.layout) {}

void UnitBuffers::allocate_resident() {
  const Schedule& schedule = context_.schedule;
  for (const Buffer& buffer : schedule.resident) {
    const bool of_units = buffer.role == BufferRole::params ||
                          buffer.role == BufferRole::optimizer ||
                          buffer.role == BufferRole::sample_grads;
    if (!of_units) continue;  // data, input, knobs and norms are others'
    create(buffer);
    slot(buffer).zero_();
  }
  for (int u = 0; u < count(); ++u) {
    const ParamAccess access = schedule.stored(u).access;
    if (access == ParamAccess::resident || access == ParamAccess::refreshed)
      params_.bind(u, units_[u].params);
  }
}

DType UnitBuffers::dtype_of(BufferRole role, int unit) const {
  const StepOptions& step = context_.options.step;
  switch (role) {
    case BufferRole::params:
    case BufferRole::staged_params:
      return context_.schedule.stored(unit).dtype;
    case BufferRole::optimizer:
    case BufferRole::staged_optimizer:
      return step.optimizer_state();
    case BufferRole::whole:
      return step.compute;
    case BufferRole::grad:
      return context_.schedule.grad_dtype;
    case BufferRole::grad_shard:
      return context_.schedule.grad_shard_dtype;
    case BufferRole::wire:
    case BufferRole::reduced:
      return step.reduce;
    case BufferRole::sample_grads:
    case BufferRole::received:
      return step.compute;
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("{} has no type of its own", name_of(role)));
  }
}

Tensor& UnitBuffers::slot(const Buffer& buffer) {
  UnitTensors& unit = units_[buffer.index];
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
    case BufferRole::received:
      return unit.received;
    case BufferRole::staged_params:
      return unit.staged_params;
    case BufferRole::staged_optimizer:
      return unit.staged_optimizer;
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("{} is not a unit's buffer", name_of(buffer.role)));
  }
}

void UnitBuffers::create(const Buffer& buffer) {
  if (made_by_blocks(buffer.role)) return;
  Tensor& tensor = slot(buffer);
  VEIL_CHECK(!tensor.defined(), "{}.{} is created twice", name_of(buffer.role), buffer.index);
  const DType dtype = dtype_of(buffer.role, buffer.index);
  const bool host = buffer.space != space_of(context_.device);
  CategoryScope scope(buffer.category);
  tensor = empty_tensor({buffer.bytes / dtype_bytes(dtype)}, dtype,
                        host ? cpu_device() : context_.device, buffer.space == Space::pinned);
  if (buffer.role == BufferRole::whole) params_.bind(buffer.index, tensor);
  // The sink writes the parameters' places only: what is between them must not be garbage on its
  // way through a sum.
  if (buffer.role == BufferRole::grad || buffer.role == BufferRole::grad_shard) {
    const UnitLayout& unit = context_.unit(buffer.index);
    if (tensor.numel() != unit.padded_numel) return;
    int64_t end = 0;
    for (const ParamSlot& param : unit.slots) {
      if (param.offset > end) tensor.narrow(0, end, param.offset - end).zero_();
      end = param.offset + param.numel;
    }
    if (unit.padded_numel > end) tensor.narrow(0, end, unit.padded_numel - end).zero_();
  }
}

void UnitBuffers::free(const Buffer& buffer) {
  if (buffer.role == BufferRole::whole) params_.bind(buffer.index, {});
  Tensor& tensor = slot(buffer);
  VEIL_CHECK(tensor.defined(), "{}.{} is freed but does not live", name_of(buffer.role),
             buffer.index);
  tensor.reset();
}

void UnitBuffers::drop_created() {
  for (const std::vector<Op>& part : context_.schedule.parts) {
    for (const Op& op : part) {
      for (const Buffer& buffer : op.creates) {
        if (!made_by_blocks(buffer.role) && slot(buffer).defined()) free(buffer);
      }
    }
  }
  for (UnitTensors& unit : units_) {
    if (context_.schedule.combine_every == 1) unit.sample_grads.reset();  // otherwise resident
    unit.grad_shard.reset();
  }
}

void UnitBuffers::cast_own_shard(int unit) {
  const Tensor& stored = units_[unit].params;
  const Tensor& whole = units_[unit].whole;
  const Tensor place = stored.numel() == whole.numel() ? whole : context_.own_part(whole, unit);
  place.copy_(stored, /*non_blocking=*/true);
}

Tensor UnitBuffers::gradient_target(ParamId id, int64_t first, int64_t count) {
  const Layout& layout = context_.schedule.layout;
  const UnitTensors& unit = units_[layout.unit_of_param[id]];
  const Tensor& flat = unit.grad.defined() ? unit.grad : unit.grad_shard;
  return flat.narrow(0, layout.offset_of_param[id] + first, count);
}

Tensor UnitBuffers::all_kept(int unit) const {
  return units_[static_cast<size_t>(unit)].sample_grads.view(
      {context_.schedule.combine_every * context_.shape.batch, -1});
}

Tensor UnitBuffers::kept(int unit) const {
  const int64_t batch = context_.shape.batch;
  return all_kept(unit).narrow(0, place_ * batch, batch);
}

Tensor UnitBuffers::kept_target(ParamId id, int64_t first, int64_t count) {
  const Schedule& schedule = context_.schedule;
  return kept(schedule.layout.unit_of_param[id])
      .narrow(1, schedule.kept_offset[static_cast<size_t>(id)] + first, count);
}

Tensor UnitBuffers::kept_together(ParamId id) const {
  const Schedule& schedule = context_.schedule;
  return all_kept(schedule.layout.unit_of_param[id])
      .narrow(1, schedule.kept_offset[static_cast<size_t>(id)], context_.shape.params[id].numel());
}

Tensor UnitBuffers::received(int unit) const {
  return units_[static_cast<size_t>(unit)].received.view(
      {context_.options.step.world * context_.shape.batch, context_.unit(unit).shard_numel});
}

const Tensor& UnitBuffers::update_gradient(int unit) const {
  const UnitTensors& u = units_[unit];
  // ddp reduces the wire's copy in place
  const bool whole_on_the_wire = u.wire.defined() && u.wire.numel() == u.grad_shard.numel();
  return whole_on_the_wire ? u.wire : u.grad_shard;
}

}  // namespace veil
