// The transformer block as generation runs it: one new token per text.
#include "nn/decode_attention.h"
#include "nn/transformer_block.h"

namespace veil {

LayerCache TransformerBlock::make_cache(int64_t batch, int64_t capacity, DType compute,
                                        Device device) const {
  // Zeros: rows that hold nothing yet are read and weighed with 0.
  const auto room = [&] {
    return empty_tensor({batch, capacity, l_.attention.kv_heads, l_.attention.head_dim}, compute,
                        device)
        .zero_();
  };
  return {room(), room()};
}

void TransformerBlock::remember(const Tape& tape, const LayerCache& cache) const {
  remember_keys(l_.attention, Saved(tape).qkv, cache);
}

Tensor TransformerBlock::decode(const Params& params, const Tensor& x, const LayerCache& cache,
                                const DecodeStep& step) const {
  Norm::Statistics unused;
  const Tensor qkv = l_.qkv.forward(params, l_.attention_norm.forward(params, x, {}, unused));
  const Tensor middle =
      l_.attention_out.forward(params, attend_to_cache(l_.attention, qkv, cache, step));
  // the norm adds x to `middle`
  const Tensor normed = l_.feed_norm.forward(params, x, middle, unused);
  return l_.down.forward_add(params, activated(l_.up.forward(params, normed)), middle);
}

}  // namespace veil
