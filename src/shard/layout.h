// Where every parameter is. A unit's parameters stand one after another in one flat buffer,
// padded once at its end so that the ranks' shards are equal; a parameter is a view. Each starts at
// an aligned place, a joined one directly behind its neighbour. Parameters that are trained and
// frozen ones never share a unit. Offsets do not depend on the world, the strategy or the wrap
// policy: element e of a unit has the model-wide index base + e, which updates are keyed by; those
// of trained units come first.
#pragma once

#include <string>
#include <vector>

#include "models/shape.h"
#include "shard/options.h"

namespace veil {

struct ParamSlot {
  ParamId param = 0;
  int64_t offset = 0;  // elements, in the unit's flat buffer
  int64_t numel = 0;
};

struct UnitLayout {
  std::string name;
  std::vector<ParamSlot> slots;
  std::vector<int> blocks;  // whose parameters it holds
  bool frozen = false;      // none of them is trained
  int64_t base = 0;         // model-wide index of its first element
  int64_t numel = 0;        // without the padding at the end
  int64_t shard_numel = 0;
  int64_t padded_numel = 0;  // world * shard_numel
};

struct Layout {
  int world = 1;
  std::vector<UnitLayout> units;
  std::vector<int> unit_of_param;        // by ParamId
  std::vector<int64_t> offset_of_param;  // likewise: in its unit
  // likewise: what its initial values are drawn by, the same whatever is frozen
  std::vector<int64_t> initial_index;
  // units that hold a block's parameters; the last entry is the loss's
  std::vector<std::vector<int>> units_of_block;
};

// Elements to which each parameter's start and each shard are aligned: 16 bytes even in bf16.
inline constexpr int64_t kAlignElements = 8;

Layout make_layout(const ModelShape& shape, WrapPolicy wrap, int64_t min_params, int world);

}  // namespace veil
