// The transformer block as generation runs it: one new token per text.
#include "base/error.h"
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

void TransformerBlock::remember(const Params& params, const Tape& tape,
                                const LayerCache& cache) const {
  remember_keys(l_.attention, prepared_heads(params, Saved(tape).qkv), cache);
}

Tensor TransformerBlock::decode(const Params& params, const Tensor& x, const LayerCache& cache,
                                const DecodeStep& step) const {
  VEIL_CHECK(l_.attention.causal && !l_.masks_padding, "{} is an encoder's: it makes no text",
             l_.name);
  Norm::Statistics unused;
  const auto normed_by = [&](const Norm& norm, const Tensor& y) {
    return norm.exists() ? norm.forward(params, y, {}, unused) : y;
  };
  Tensor qkv = l_.qkv.forward(params, normed_by(l_.attention_norm, x));
  if (l_.head_norms.exist()) qkv = l_.head_norms.forward(params, l_.attention, qkv);
  const Tensor attended = attend_to_cache(l_.attention, qkv, cache, step);
  const Tensor middle =
      normed_by(l_.attention_post_norm, l_.attention_out.forward(params, attended));
  Tensor normed = middle;
  if (l_.feed_norm.exists()) {
    normed = l_.feed_norm.forward(params, x, middle, unused);  // it adds x to `middle`
  } else {
    middle.add_(x);
  }
  const Tensor active = activated(l_.up.forward(params, normed));
  if (!ends_with_norm()) return l_.down.forward_add(params, active, middle);
  return l_.feed_post_norm.forward(params, l_.down.forward(params, active), {}, unused)
      .add_(middle);
}

}  // namespace veil
