// What a block's forward keeps for its backward.
#pragma once

#include <vector>

#include "tensor/device.h"

namespace veil {

// What runs from block to block: the hidden states (token ids before the first block of a language model). (DiT's conditioning will stand beside them.)
struct Flow {
  Tensor hidden;  // [batch, ...]
};

// One micro-batch as a model sees it.
struct Batch {
  Tensor inputs;        // [batch, ...]
  Tensor targets;       // [batch, ...]
  Tensor counted = {};  // bytes [batch]: 0 for padding, which a private step must leave out; undefined: all count
};

// `input` and `output` are the flow on both sides, shared with the neighbours and kept only where the block's shape says so; `saved` is the block's own;
// `kept` likewise, and costly to make but small: selective checkpointing keeps it, and a forward that finds it filled does not make it again.
// The schedule frees a tape, so a second backward is possible.
struct Tape {
  Tensor input = {}, output = {};
  std::vector<Tensor> saved = {}, kept = {};
};

}  // namespace veil
