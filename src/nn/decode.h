// Generation: one new token per text at a time, while the keys and values of all tokens before it
// are kept. Blocks that can do so implement Decodes and Block.
#pragma once

#include "nn/block.h"

namespace veil {

// What one block keeps of the tokens so far. Blocks without attention keep nothing.
struct LayerCache {
  Tensor keys, values;  // [batch, capacity, kv_heads, head_dim]
};

// Where the new tokens are. The tensors live on the device and advance there, so that a captured
// step can be replayed.
struct DecodeStep {
  Tensor positions;            // int64 [batch]: the new token's place in its text
  Tensor lengths;              // int32 [batch]: tokens of the text with the new one
  Tensor starts;               // int32 [batch + 1]: 0, 1, ... batch
  Tensor key_starts;           // int32 [batch + 1]: 0, capacity, ... batch * capacity
  int64_t longest = 0;         // no text is longer, the new token included
  bool equal_lengths = false;  // known to the host: every text has `longest` tokens
};

class Decodes {
 public:
  virtual ~Decodes() = default;
  virtual LayerCache make_cache(int64_t batch, int64_t capacity, DType compute,
                                Device device) const = 0;
  // Takes the keys and values of whole prompts from the tape of their forward.
  virtual void remember(const Params& params, const Tape& tape, const LayerCache& cache) const = 0;
  // The new tokens' hidden states [batch, 1, width] (ids [batch, 1] for the first block) -> the
  // block's output. Their keys and values join the cache.
  virtual Tensor decode(const Params& params, const Tensor& in, const LayerCache& cache,
                        const DecodeStep& step) const = 0;
};

}  // namespace veil
