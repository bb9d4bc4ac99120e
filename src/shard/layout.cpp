#include "shard/layout.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace veil {
namespace {

int64_t align(int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

// The loss counts as the block after the last.
const BlockShape& block_at(const ModelShape& shape, int b) {
  return b == static_cast<int>(shape.blocks.size()) ? shape.loss
                                                    : shape.blocks[static_cast<size_t>(b)];
}

// Consecutive blocks that share a unit, by the wrap policy.
std::vector<std::vector<int>> group_blocks(const ModelShape& shape, WrapPolicy wrap,
                                           int64_t min_params) {
  std::vector<std::vector<int>> groups;
  int64_t open_params = 0;
  const int blocks = static_cast<int>(shape.blocks.size()) + (shape.loss.params.empty() ? 0 : 1);
  for (int b = 0; b < blocks; ++b) {
    const bool close = groups.empty() || wrap == WrapPolicy::module ||
                       (wrap == WrapPolicy::size && open_params >= min_params);
    if (close) {
      groups.emplace_back();
      open_params = 0;
    }
    groups.back().push_back(b);
    for (ParamId p : block_at(shape, b).params) open_params += shape.params[p].numel();
  }
  return groups;
}

// Where every parameter would begin if all stood one after another.
std::vector<int64_t> initial_indices(const ModelShape& shape) {
  std::vector<int64_t> indices(shape.params.size(), -1);
  int64_t end = 0;
  for (int b = 0; b <= static_cast<int>(shape.blocks.size()); ++b) {
    for (ParamId p : block_at(shape, b).params) {
      if (indices[p] >= 0) continue;
      if (!shape.params[p].joined) end = align(end);
      indices[p] = end;
      end += shape.params[p].numel();
    }
  }
  return indices;
}

// The trained or the frozen parameters of a group of blocks that have no place yet.
UnitLayout unit_of(const ModelShape& shape, const std::vector<int>& group, bool frozen,
                   Layout& layout) {
  UnitLayout unit;
  unit.name = block_at(shape, group.front()).name;
  if (group.size() > 1) unit.name += ".." + block_at(shape, group.back()).name;
  if (frozen) unit.name += " (frozen)";
  unit.blocks = group;
  unit.frozen = frozen;
  for (int b : group) {
    for (ParamId p : block_at(shape, b).params) {
      if (shape.params[p].frozen != frozen) continue;
      if (layout.unit_of_param[p] >= 0) continue;  // tied: it lies where it was first used
      layout.unit_of_param[p] = static_cast<int>(layout.units.size());
      const bool joined = shape.params[p].joined;
      VEIL_CHECK(!joined || (!unit.slots.empty() && unit.slots.back().param == p - 1),
                 "{} is joined to a parameter that does not lie before it", shape.params[p].name);
      if (!joined) unit.numel = align(unit.numel);
      layout.offset_of_param[p] = unit.numel;
      unit.slots.push_back({p, unit.numel, shape.params[p].numel()});
      unit.numel += shape.params[p].numel();
    }
  }
  unit.numel = align(unit.numel);
  return unit;
}

// In the order in which forward meets them: a block's trained unit, then its frozen one.
void order_units(Layout& layout) {
  std::vector<int> order(layout.units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return layout.units[static_cast<size_t>(a)].blocks.front() <
           layout.units[static_cast<size_t>(b)].blocks.front();
  });
  std::vector<UnitLayout> units;
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[static_cast<size_t>(order[i])] = static_cast<int>(i);
    units.push_back(std::move(layout.units[static_cast<size_t>(order[i])]));
  }
  layout.units = std::move(units);
  for (int& unit : layout.unit_of_param) {
    if (unit >= 0) unit = place[static_cast<size_t>(unit)];
  }
}

}  // namespace

Layout make_layout(const ModelShape& shape, WrapPolicy wrap, int64_t min_params, int world) {
  VEIL_CHECK(world >= 1, "world {}", world);
  Layout layout;
  layout.world = world;
  layout.unit_of_param.assign(shape.params.size(), -1);
  layout.offset_of_param.assign(shape.params.size(), 0);
  layout.initial_index = initial_indices(shape);
  int64_t base = 0;  // trained units' first, then frozen ones'
  for (const bool frozen : {false, true}) {
    for (const std::vector<int>& group : group_blocks(shape, wrap, min_params)) {
      UnitLayout unit = unit_of(shape, group, frozen, layout);
      if (unit.slots.empty()) continue;
      unit.base = base;
      base += unit.numel;
      unit.shard_numel = align((unit.numel + world - 1) / world);
      unit.padded_numel = unit.shard_numel * world;
      layout.units.push_back(std::move(unit));
    }
  }
  order_units(layout);
  auto units_of = [&](const BlockShape& block) {
    std::vector<int> units;
    for (ParamId p : block.params) units.push_back(layout.unit_of_param[p]);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    return units;
  };
  for (const BlockShape& block : shape.blocks) layout.units_of_block.push_back(units_of(block));
  layout.units_of_block.push_back(units_of(shape.loss));
  return layout;
}

}  // namespace veil
