// What a block's forward keeps for its backward.
#pragma once

#include <vector>

#include "tensor/device.h"

namespace veil {

// What runs from block to block: the hidden states (token ids before the first block of a language
// model, images before that of a diffusion model). Beside them, if a model has one, its
// conditioning: the first block makes it of Batch::conditions, and the others hand it on as it is.
// Its gradient, to which every block adds, is fp32 (fp64 if the model is).
struct Flow {
  Tensor hidden;          // [batch, ...]
  Tensor condition = {};  // [batch, width]
  // The token ids [batch, tokens] of a language model, for blocks that must tell padding from text:
  // the first block puts them there, and the others hand them on. They have no gradient.
  Tensor ids = {};
};

// One micro-batch as a model sees it.
struct Batch {
  Tensor inputs;   // [batch, ...]
  Tensor targets;  // [batch, ...]
  // bytes [batch]: 0 for padding, which a private step must leave out; undefined: all count
  Tensor counted = {};
  Tensor conditions = {};  // [batch, ...]; undefined if the model has none

  // What `of` makes of every tensor that is there.
  template <typename Function>
  Batch each(const Function& of) const {
    auto made = [&](const Tensor& tensor) { return tensor.defined() ? of(tensor) : Tensor(); };
    return {made(inputs), made(targets), made(counted), made(conditions)};
  }
  // `count` samples from the one at `first` on, as views.
  Batch narrow(int64_t first, int64_t count) const {
    return each([&](const Tensor& tensor) { return tensor.narrow(0, first, count); });
  }
};

// `input` and `output` are the flow on both sides, shared with the neighbours and kept only if
// the block's shape says so; `saved` is the block's own; `kept` likewise, and costly to make but
// small: selective checkpointing keeps it, and a forward that finds it filled does not make it
// again. The schedule frees a tape, so a second backward is possible.
struct Tape {
  Tensor input = {}, output = {};
  std::vector<Tensor> saved = {}, kept = {};
};

}  // namespace veil
