#include "nn/attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/rope.h"
#include "kernels/tiled_attention.h"
#include "tensor/category.h"

namespace veil {
namespace {

// window_flash: flash by the call that knows windows. tiled: Veil's own.
enum class Library { cudnn, flash, window_flash, cpu_flash, tiled, math };

Library library_for(AttentionKind kind, DType compute, Device device) {
  if (kind == AttentionKind::math) return Library::math;
  if (!device.is_cuda()) return Library::cpu_flash;
  if (compute != at::kBFloat16 && compute != at::kHalf) return Library::math;
  // cuDNN's backward adds as it comes
  const bool any_order = !at::globalContext().deterministicAlgorithms();
  return gpu_capability(device) >= 90 && any_order ? Library::cudnn : Library::flash;
}

constexpr int64_t kWidestCudnnHead = 128;

Library library_for(const Attention& a, const Tensor& qkv, const Tensor& mask) {
  if (a.holds_scores(qkv.scalar_type(), qkv.is_cuda(), mask.defined())) return Library::math;
  const Library library = library_for(a.kind, qkv.scalar_type(), qkv.device());
  if (library == Library::cpu_flash) {
    const bool all_seen = !mask.defined() && !a.slides(qkv.size(1));
    return all_seen && tiled_attention_is_fastest(a.head_dim, qkv.scalar_type()) ? Library::tiled
                                                                                 : library;
  }
  if (a.slides(qkv.size(1))) return Library::window_flash;
  return a.head_dim > kWidestCudnnHead ? Library::flash : library;
}

// What position t does not see of the positions, [tokens, tokens], true there.
Tensor unseen(const Attention& a, int64_t tokens, Device device) {
  const auto options = at::TensorOptions(at::kBool).device(device);
  Tensor later = at::ones({tokens, tokens}, options).triu_(1);
  if (a.slides(tokens)) later.logical_or_(at::ones({tokens, tokens}, options).tril_(-a.window));
  return later;
}

// Added to the scores, [1, 1, tokens, tokens]. The lowest number instead of -inf: a stretch of keys
// that is hidden as a whole must not become NaN in a library that takes stretches one by one.
Tensor window_mask(const Attention& a, int64_t tokens, DType dtype) {
  CategoryScope scope(Category::temporary);
  return at::zeros({1, 1, tokens, tokens}, dtype)
      .masked_fill_(unseen(a, tokens, cpu_device()), hidden_score(dtype));
}

// What LibTorch takes: nothing if the scale is its own.
std::optional<double> given_scale(const Attention& a) {
  return a.scale > 0 ? std::optional(a.scale) : std::nullopt;
}

struct Heads {
  Tensor q, k, v;  // [batch, heads, tokens, head_dim], views of qkv
};

Heads split(const Attention& a, const Tensor& qkv) {
  const Tensor heads =
      qkv.view({qkv.size(0), qkv.size(1), a.heads + 2 * a.kv_heads, a.head_dim}).transpose(1, 2);
  return {heads.narrow(1, 0, a.heads), heads.narrow(1, a.heads, a.kv_heads),
          heads.narrow(1, a.heads + a.kv_heads, a.kv_heads)};
}

TiledAttention tiled_options(const Attention& a) {
  return {a.heads, a.kv_heads, a.head_dim, a.causal, a.score_scale()};
}

// [batch, tokens, count, head_dim]
Tensor empty_heads(const Attention& a, const Tensor& qkv, int64_t count) {
  return empty_tensor({qkv.size(0), qkv.size(1), count, a.head_dim}, qkv.scalar_type(),
                      qkv.device());
}

// Each key and value head stands for a group of query heads.
Tensor grouped(const Tensor& kv, int64_t heads) {
  const int64_t groups = kv.size(1), each = heads / groups;
  return kv.unsqueeze(2)
      .expand({kv.size(0), groups, each, kv.size(2), kv.size(3)})
      .reshape({kv.size(0), heads, kv.size(2), kv.size(3)});
}

// LibTorch takes no undefined tensor for an absent mask.
std::optional<Tensor> optional(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

Tensor summed_over_group(const Tensor& grad, int64_t groups) {
  return grad.view({grad.size(0), groups, grad.size(1) / groups, grad.size(2), grad.size(3)})
      .sum(2);
}

Tensor probabilities(const Attention& a, const Tensor& q, const Tensor& k, const Tensor& mask) {
  Tensor scores = at::matmul(q, k.transpose(-1, -2)).mul_(a.score_scale());
  if (a.causal)
    scores.masked_fill_(unseen(a, q.size(2), q.device()), -std::numeric_limits<double>::infinity());
  if (mask.defined()) scores.add_(mask);
  return at::softmax(scores, -1);
}

// What attention by whole matrices holds, in bytes.
struct MathBytes {
  int64_t scores, result, row_sums;  // [tokens, tokens], [tokens, head_dim] and [tokens], all heads
  int64_t group = 0;                 // keys or values for all heads, if some share one
  // LibTorch copies heads that do not lie behind each other: of queries and gradients, and of keys
  // and values that are not copied for all heads before.
  int64_t copied_heads = 0, copied_group = 0;
  int64_t hidden;  // what a position does not see

  MathBytes(const Attention& a, int64_t batch, int64_t tokens, DType compute)
      : row_sums(batch * a.heads * tokens * dtype_bytes(compute)) {
    scores = row_sums * tokens;
    result = row_sums * a.head_dim;
    if (batch > 1) copied_heads = result;
    const bool repeated = a.kv_heads > 1 && a.kv_heads < a.heads;  // others are views
    if (repeated) group = result;
    if (!repeated && batch > 1) copied_group = result;
    hidden = !a.causal ? 0 : (a.slides(tokens) ? 2 : 1) * tokens * tokens;
  }
  // probabilities() at its largest, without keys that were made for all heads
  int64_t probabilities() const {
    return scores + std::max({copied_heads + copied_group, hidden, scores});
  }
};

}  // namespace

const NameTable<AttentionKind>& names(AttentionKind) {
  static const NameTable<AttentionKind> table = {
      {AttentionKind::automatic, "auto", {"flash", "cudnn"}}, {AttentionKind::math, "math"}};
  return table;
}

std::string attention_backend(AttentionKind kind, DType compute, Device device) {
  switch (library_for(kind, compute, device)) {
    case Library::cudnn:
      return "cudnn";
    case Library::math:
      return "math";
    default:
      return "flash";
  }
}

double hidden_score(DType dtype) {
  return dtype == at::kDouble     ? std::numeric_limits<double>::lowest()
         : dtype == at::kFloat    ? std::numeric_limits<float>::lowest()
         : dtype == at::kBFloat16 ? std::numeric_limits<c10::BFloat16>::lowest()
                                  : std::numeric_limits<c10::Half>::lowest();
}

Tensor padding_mask(const Tensor& ids, int64_t padding_id, DType compute) {
  Tensor mask = at::zeros({ids.size(0), 1, 1, ids.size(1)}, ids.options().dtype(compute));
  CategoryScope scope(Category::temporary);
  mask.masked_fill_(ids.eq(padding_id).view(mask.sizes()), hidden_score(compute));
  return mask;
}

void Attention::turn(const Tensor& qkv) const {
  if (rope.count == 0) return;
  veil::rope(qkv.view({qkv.size(0), qkv.size(1), heads + 2 * kv_heads, head_dim}), heads + kv_heads,
             rope);
}

Tensor Attention::forward(const Tensor& qkv, bool turned, std::vector<Tensor>& kept,
                          const Tensor& mask) const {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  if (!turned) turn(qkv);
  if (!kept.empty()) return kept[0];
  const Heads h = split(*this, qkv);
  Tensor out;
  switch (library_for(*this, qkv, mask)) {
    case Library::cudnn: {
      auto [o, lse, cum_q, cum_k, max_q, max_k, seed, offset, drawn] =
          at::_scaled_dot_product_cudnn_attention(h.q, h.k, h.v, {}, /*compute_log_sumexp=*/true,
                                                  0.0, causal, false, given_scale(*this));
      out = o;
      kept = {{}, lse, seed, offset};
      break;
    }
    case Library::flash: {
      auto [o, lse, cum_q, cum_k, max_q, max_k, seed, offset, drawn] =
          at::_scaled_dot_product_flash_attention(h.q, h.k, h.v, 0.0, causal, false,
                                                  given_scale(*this));
      out = o;
      kept = {{}, lse, seed, offset};
      break;
    }
    case Library::window_flash: {
      auto [o, lse, seed, offset, debug] =
          at::_flash_attention_forward(h.q.transpose(1, 2), h.k.transpose(1, 2),
                                       h.v.transpose(1, 2), {}, {}, tokens, tokens, 0.0,
                                       /*is_causal=*/true, false, score_scale(), window - 1, 0);
      out = o.transpose(1, 2);
      kept = {{}, lse, seed, offset};
      break;
    }
    case Library::cpu_flash: {
      const bool windowed = slides(tokens);
      const Tensor added = windowed ? window_mask(*this, tokens, qkv.scalar_type()) : mask;
      auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
          h.q, h.k, h.v, 0.0, causal && !windowed, optional(added), given_scale(*this));
      out = o;
      kept = {{}, lse};
      break;
    }
    case Library::tiled: {
      const Tensor o = empty_heads(*this, qkv, heads),
                   lse = empty_tensor({batch, heads, tokens}, at::kFloat, qkv.device());
      tiled_attention(tiled_options(*this), qkv, o, lse);
      out = o.transpose(1, 2);
      kept = {{}, lse};
      break;
    }
    case Library::math: {
      CategoryScope scope(Category::temporary);
      const Tensor p = probabilities(*this, h.q, grouped(h.k, heads), mask);
      out = at::matmul(p, grouped(h.v, heads));
      kept = {{}};
      break;
    }
  }
  kept[0] = out.transpose(1, 2).reshape({batch, tokens, width()});
  return kept[0];
}

Attention::HeadGrads Attention::head_grads(const Tensor& d_out, const Tensor& qkv,
                                           const std::vector<Tensor>& kept,
                                           const Tensor& mask) const {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  const Heads h = split(*this, qkv);
  auto by_head = [&](const Tensor& x) {
    return x.view({batch, tokens, heads, head_dim}).transpose(1, 2);
  };
  const Tensor grad = by_head(d_out), out = by_head(kept[0]);
  Tensor dq, dk, dv;
  switch (library_for(*this, qkv, mask)) {
    case Library::cudnn:
      std::tie(dq, dk, dv) = at::_scaled_dot_product_cudnn_attention_backward(
          grad, h.q, h.k, h.v, out, kept[1], kept[2], kept[3], {}, {}, {}, tokens, tokens, 0.0,
          causal, given_scale(*this));
      break;
    case Library::flash:
      std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_backward(
          grad, h.q, h.k, h.v, out, kept[1], {}, {}, tokens, tokens, 0.0, causal, kept[2], kept[3],
          given_scale(*this));
      break;
    case Library::window_flash: {
      const auto by_token = [](const Tensor& x) { return x.transpose(1, 2); };
      std::tie(dq, dk, dv) = at::_flash_attention_backward(
          by_token(grad), by_token(h.q), by_token(h.k), by_token(h.v), by_token(out), kept[1], {},
          {}, tokens, tokens, 0.0, /*is_causal=*/true, kept[2], kept[3], score_scale(), window - 1,
          0);
      dq = by_token(dq), dk = by_token(dk), dv = by_token(dv);
      break;
    }
    case Library::cpu_flash: {
      const bool windowed = slides(tokens);
      const Tensor added = windowed ? window_mask(*this, tokens, qkv.scalar_type()) : mask;
      std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad, h.q, h.k, h.v, out, kept[1], 0.0, causal && !windowed, optional(added),
          given_scale(*this));
      break;
    }
    case Library::tiled: {
      const Tensor to_q = empty_heads(*this, qkv, heads), to_k = empty_heads(*this, qkv, kv_heads),
                   to_v = empty_heads(*this, qkv, kv_heads);
      tiled_attention_backward(tiled_options(*this), d_out.contiguous(), qkv, kept[0], kept[1],
                               to_q, to_k, to_v);
      dq = to_q.transpose(1, 2), dk = to_k.transpose(1, 2), dv = to_v.transpose(1, 2);
      break;
    }
    case Library::math: {
      const Tensor k = grouped(h.k, heads), v = grouped(h.v, heads),
                   p = probabilities(*this, h.q, k, mask);
      Tensor ds = at::matmul(grad, v.transpose(-1, -2));  // first those of the probabilities
      const Tensor row_sums = (ds * p).sum(-1, /*keepdim=*/true);
      ds.sub_(row_sums).mul_(p).mul_(score_scale());
      dq = at::matmul(ds, k);
      dk = summed_over_group(at::matmul(ds.transpose(-1, -2), h.q).contiguous(), kv_heads);
      dv = summed_over_group(at::matmul(p.transpose(-1, -2), grad).contiguous(), kv_heads);
      break;
    }
  }
  return {dq, dk, dv};
}

Tensor Attention::backward(const Tensor& d_out, const Tensor& qkv, const std::vector<Tensor>& kept,
                           const Tensor& mask) const {
  const HeadGrads by = head_grads(d_out, qkv, kept, mask);
  const Tensor dqkv = empty_heads(*this, qkv, heads + 2 * kv_heads);
  rope_backward(by.q, by.k, by.v, dqkv, rope);
  return dqkv.flatten(2);
}

Tensor Attention::backward_summed(const Tensor& d_out, const Tensor& qkv,
                                  const std::vector<Tensor>& kept, const Tensor& sums) const {
  VEIL_CHECK(rope.count == 0, "sums of what a rope turns are not made here");
  const HeadGrads by = head_grads(d_out, qkv, kept, {});
  const Tensor dqkv = empty_heads(*this, qkv, heads + 2 * kv_heads);
  pack_heads(by.q, by.k, by.v, dqkv, sums);
  return dqkv.flatten(2);
}

int64_t Attention::kept_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu,
                              bool masked) const {
  const int64_t out = batch * tokens * width() * dtype_bytes(compute);
  if (holds_scores(compute, on_gpu, masked)) return out;
  const int64_t lse =
      batch * heads * tokens * dtype_bytes(compute == at::kDouble ? at::kDouble : at::kFloat);
  return out + lse + (on_gpu ? 2 * dtype_bytes(at::kLong) : 0);  // and what dropout would draw from
}

int64_t Attention::window_bytes(int64_t tokens, DType compute) const {
  // the mask; while it is made, two of booleans
  return kind == AttentionKind::math || !slides(tokens) ? 0
                                                        : tokens * tokens * dtype_bytes(compute);
}

bool Attention::holds_scores(DType compute, bool on_gpu, bool masked) const {
  // neither library of a GPU takes masks, or heads of other widths
  const bool refused = dtype_bytes(compute) > 2 || masked || head_dim % 8 != 0;
  return kind == AttentionKind::math || (on_gpu && refused);
}

Scores Attention::scores(int64_t batch, int64_t tokens, DType compute, bool on_gpu,
                         bool masked) const {
  if (!holds_scores(compute, on_gpu, masked)) return {};
  return {batch * heads, batch * heads * tokens * tokens * dtype_bytes(compute),
          4 * batch * tokens * tokens * width()};
}

// probabilities() and forward() above, line by line.
int64_t Attention::forward_score_bytes(int64_t batch, int64_t tokens, DType compute) const {
  const MathBytes b(*this, batch, tokens, compute);
  const int64_t applied = b.scores + b.group + b.copied_group + b.result;
  return std::max({b.group + b.probabilities(), applied, 2 * b.result});
}

int64_t Attention::backward_score_bytes(int64_t batch, int64_t tokens, DType compute) const {
  const MathBytes b(*this, batch, tokens, compute);
  const int64_t keys = b.result / (heads / kv_heads);  // the gradient of k, or of v
  const int64_t made = 2 * b.scores + b.row_sums;      // p and ds, and what ds was made of
  const int64_t last =
      2 * b.result + keys + std::max(b.copied_heads, keys);  // dq, dk, and dv's sum
  return 2 * b.group + std::max({b.probabilities(), 2 * b.scores + b.copied_heads + b.copied_group,
                                 b.scores + made, made + b.copied_group + b.result, made + last});
}

int64_t Attention::flops(int64_t batch, int64_t tokens) const {
  if (causal && slides(tokens)) return 4 * batch * (tokens - window / 2) * window * width();
  return 4 * batch * tokens * tokens * width() / (causal ? 2 : 1);
}

}  // namespace veil
