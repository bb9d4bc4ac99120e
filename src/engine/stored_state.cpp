#include "engine/stored_state.h"

#include <algorithm>

#include "base/error.h"
#include "models/initial_values.h"

namespace veil {

void StoredState::initialise() {
  for (int u = 0; u < units_.count(); ++u) {
    const int64_t shard = context_.unit(u).shard_numel;
    initialise(u, units_[u].params,
               context_.schedule.stored(u).whole ? 0 : context_.ranks.rank() * shard);
  }
  synchronize(context_.device);
}

// Fills the part of a unit that `stored` holds; `first` is the place of its first element in the
// unit.
void StoredState::initialise(int unit, const Tensor& stored, int64_t first) {
  const UnitLayout& layout = context_.unit(unit);
  const ExecutorOptions& options = context_.options;
  for (const ParamSlot& param : layout.slots) {
    const int64_t begin = std::max(param.offset, first),
                  end = std::min(param.offset + param.numel, first + stored.numel());
    if (begin >= end) continue;
    const Tensor piece = stored.narrow(0, begin - first, end - begin);
    const Init& init = context_.shape.params[param.param].init;
    const int64_t index = context_.schedule.layout.initial_index[param.param] +  // of the first
                          begin - param.offset;
    if (options.initial && options.initial(param.param, begin - param.offset, piece)) continue;
    fill_by_rule(init, piece, options.seed, index);
  }
}

Tensor StoredState::optimizer_state(int unit, int s) const {
  const Tensor& all = units_[unit].optimizer;
  const int64_t numel = all.numel() / optimizer_states(context_.options.optimizer.kind);
  return all.narrow(0, s * numel, numel);
}

// `count` elements from `first` on (both of the unit) in a buffer that holds the whole unit or this
// rank's shard of it.
Tensor StoredState::own_elements(const Tensor& flat, int unit, int64_t first, int64_t count) const {
  return flat.narrow(0, first - context_.first_of(flat, unit), count);
}

std::vector<StatePiece> StoredState::pieces() {
  synchronize(context_.device);
  std::vector<StatePiece> pieces;
  for (int u = 0; u < units_.count(); ++u) {
    const UnitLayout& layout = context_.unit(u);
    if (layout.frozen) continue;
    const int64_t first = context_.ranks.rank() * layout.shard_numel;
    const int64_t count = std::min(layout.shard_numel, layout.numel - first);
    if (count <= 0) continue;
    StatePiece piece{layout.base + first, own_elements(units_[u].params, u, first, count), {}};
    for (int s = 0; s < optimizer_states(context_.options.optimizer.kind); ++s)
      piece.optimizer.push_back(own_elements(optimizer_state(u, s), u, first, count));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void StoredState::restore(const ReadState& read) {
  synchronize(context_.device);
  StreamGuard guard(context_.compute);
  auto fill = [&](int kind, const Tensor& flat, int unit) {
    const UnitLayout& layout = context_.unit(unit);
    const int64_t first = context_.first_of(flat, unit);
    const int64_t count = std::min(flat.numel(), layout.numel - first);
    if (count > 0) read(kind, layout.base + first, flat.narrow(0, 0, count));
  };
  for (int u = 0; u < units_.count(); ++u) {
    if (context_.unit(u).frozen) continue;
    fill(-1, units_[u].params, u);
    for (int s = 0; s < optimizer_states(context_.options.optimizer.kind); ++s)
      fill(s, optimizer_state(u, s), u);
  }
  synchronize(context_.device);
}

Tensor StoredState::parameter(ParamId id) {
  StreamGuard guard(context_.compute);
  const int u = context_.schedule.layout.unit_of_param[id];
  const UnitLayout& layout = context_.unit(u);
  Tensor flat = units_[u].params;
  const bool here = layout.frozen && context_.schedule.stored(u).whole;
  if (context_.schedule.reduces && context_.options.step.strategy != Strategy::ddp && !here) {
    Tensor whole = empty_tensor({layout.padded_numel}, flat.scalar_type(), context_.device);
    context_.own_part(whole, u).copy_(context_.own_part(flat, u));
    context_.ranks.gather->all_gather(context_.own_part(whole, u), whole)->wait();
    flat = whole;
  }
  synchronize(context_.device);
  for (const ParamSlot& slot : layout.slots) {
    if (slot.param == id)
      return flat.narrow(0, slot.offset, slot.numel)
          .view(context_.shape.params[id].dims)
          .cpu()
          .clone();
  }
  check_failed(__FILE__, __LINE__, "not reached",
               fmt::format("{} has no place in its unit", context_.shape.params[id].name));
}

}  // namespace veil
