#include "nn/decode_attention.h"

#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "kernels/cache_append.h"

namespace veil {
namespace {

// bool [batch, longest]: keys that the new token does not see.
Tensor unseen_keys(const Attention& a, const DecodeStep& step) {
  const Tensor places = at::arange(step.longest, step.positions.options()).unsqueeze(0),
               own = step.positions.unsqueeze(1);
  const Tensor later = places.gt(own);
  return a.slides(step.longest) ? later.logical_or(places.le(own.sub(a.window))) : later;
}

}  // namespace

Tensor attend_to_cache(const Attention& a, const Tensor& qkv, const LayerCache& cache,
                       const DecodeStep& step) {
  const int64_t batch = qkv.size(0), all = a.heads + 2 * a.kv_heads;
  const Tensor heads = qkv.view({batch, all, a.head_dim});
  cache_append(heads, cache.keys, cache.values, step.positions, a.rope);
  const Tensor q = heads.narrow(1, 0, a.heads);  // [batch, heads, head_dim]
  const double scale = a.score_scale();
  const bool flash = qkv.is_cuda() && a.kind == AttentionKind::automatic &&
                     dtype_bytes(qkv.scalar_type()) == 2 && a.head_dim % 8 == 0;
  if (flash) {
    const auto rows = [&](const Tensor& x) { return x.view({-1, a.kv_heads, a.head_dim}); };
    const Tensor out = std::get<0>(at::_flash_attention_forward(
        q, rows(cache.keys), rows(cache.values), step.starts, step.key_starts, 1,
        cache.keys.size(1), 0.0, /*is_causal=*/false, /*return_debug_mask=*/false, scale,
        a.window > 0 ? std::optional(a.window - 1) : std::nullopt,
        a.window > 0 ? std::optional<int64_t>(0) : std::nullopt, step.lengths));
    return out.reshape({batch, 1, a.width()});
  }
  // [batch, kv_heads, longest, head_dim]
  const Tensor k = cache.keys.narrow(1, 0, step.longest).transpose(1, 2),
               v = cache.values.narrow(1, 0, step.longest).transpose(1, 2);
  if (!qkv.is_cuda() && a.kind == AttentionKind::automatic) {
    std::optional<Tensor> mask;
    if (!step.equal_lengths || a.slides(step.longest))
      mask = at::zeros({batch, 1, 1, step.longest}, qkv.options())
                 .masked_fill_(unseen_keys(a, step).view({batch, 1, 1, -1}),
                               hidden_score(qkv.scalar_type()));
    const Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        q.unsqueeze(2), k, v, 0.0, /*is_causal=*/false, mask, scale));
    return out.transpose(1, 2).reshape({batch, 1, a.width()});
  }
  // Each key head serves a group of query heads: [batch, kv_heads, group, head_dim].
  const Tensor grouped = q.reshape({batch, a.kv_heads, a.heads / a.kv_heads, a.head_dim});
  Tensor scores = at::matmul(grouped, k.transpose(-1, -2)).mul_(scale);
  scores.masked_fill_(unseen_keys(a, step).view({batch, 1, 1, -1}),
                      -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), v).reshape({batch, 1, a.width()});
}

void remember_keys(const Attention& a, const Tensor& qkv, const LayerCache& cache) {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  const Tensor heads = qkv.view({batch, tokens, a.heads + 2 * a.kv_heads, a.head_dim});
  cache.keys.narrow(1, 0, tokens).copy_(heads.narrow(2, a.heads, a.kv_heads));
  cache.values.narrow(1, 0, tokens).copy_(heads.narrow(2, a.heads + a.kv_heads, a.kv_heads));
}

}  // namespace veil
