#include "nn/attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/rope.h"
#include "tensor/category.h"

namespace veil {
namespace {

enum class Library { cudnn, flash, cpu_flash, math };

Library library_for(AttentionKind kind, DType compute, Device device) {
  if (kind == AttentionKind::math) return Library::math;
  if (!device.is_cuda()) return Library::cpu_flash;
  if (compute != at::kBFloat16 && compute != at::kHalf) return Library::math;
  // cuDNN's backward adds as it comes
  const bool any_order = !at::globalContext().deterministicAlgorithms();
  return gpu_capability(device) >= 90 && any_order ? Library::cudnn : Library::flash;
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

// Each key and value head stands for a group of query heads.
Tensor grouped(const Tensor& kv, int64_t heads) {
  const int64_t groups = kv.size(1), each = heads / groups;
  return kv.unsqueeze(2)
      .expand({kv.size(0), groups, each, kv.size(2), kv.size(3)})
      .reshape({kv.size(0), heads, kv.size(2), kv.size(3)});
}

Tensor summed_over_group(const Tensor& grad, int64_t groups) {
  return grad.view({grad.size(0), groups, grad.size(1) / groups, grad.size(2), grad.size(3)})
      .sum(2);
}

Tensor probabilities(const Attention& a, const Tensor& q, const Tensor& k) {
  const int64_t tokens = q.size(2);
  Tensor scores =
      at::matmul(q, k.transpose(-1, -2)).mul_(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  if (a.causal) {
    const Tensor above = at::ones({tokens, tokens}, scores.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(above, -std::numeric_limits<double>::infinity());
  }
  return at::softmax(scores, -1);
}

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

Tensor Attention::forward(const Tensor& qkv, bool turned, std::vector<Tensor>& kept) const {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  if (!turned && rope.count > 0)
    veil::rope(qkv.view({batch, tokens, heads + 2 * kv_heads, head_dim}), heads + kv_heads, rope);
  if (!kept.empty()) return kept[0];
  const Heads h = split(*this, qkv);
  Tensor out;
  switch (library_for(kind, qkv.scalar_type(), qkv.device())) {
    case Library::cudnn: {
      auto [o, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] =
          at::_scaled_dot_product_cudnn_attention(h.q, h.k, h.v, {}, /*compute_log_sumexp=*/true,
                                                  0.0, causal);
      out = o;
      kept = {{}, lse, seed, offset};
      break;
    }
    case Library::flash: {
      auto [o, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] =
          at::_scaled_dot_product_flash_attention(h.q, h.k, h.v, 0.0, causal);
      out = o;
      kept = {{}, lse, seed, offset};
      break;
    }
    case Library::cpu_flash: {
      auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(h.q, h.k, h.v, 0.0, causal);
      out = o;
      kept = {{}, lse};
      break;
    }
    case Library::math: {
      CategoryScope scope(Category::temporary);
      out = at::matmul(probabilities(*this, h.q, grouped(h.k, heads)), grouped(h.v, heads));
      kept = {{}};
      break;
    }
  }
  kept[0] = out.transpose(1, 2).reshape({batch, tokens, width()});
  return kept[0];
}

Tensor Attention::backward(const Tensor& d_out, const Tensor& qkv,
                           const std::vector<Tensor>& kept) const {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  const Heads h = split(*this, qkv);
  auto by_head = [&](const Tensor& x) {
    return x.view({batch, tokens, heads, head_dim}).transpose(1, 2);
  };
  const Tensor grad = by_head(d_out), out = by_head(kept[0]);
  Tensor dq, dk, dv;
  switch (library_for(kind, qkv.scalar_type(), qkv.device())) {
    case Library::cudnn:
      std::tie(dq, dk, dv) = at::_scaled_dot_product_cudnn_attention_backward(
          grad, h.q, h.k, h.v, out, kept[1], kept[2], kept[3], {}, {}, {}, tokens, tokens, 0.0,
          causal);
      break;
    case Library::flash:
      std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_backward(
          grad, h.q, h.k, h.v, out, kept[1], {}, {}, tokens, tokens, 0.0, causal, kept[2], kept[3]);
      break;
    case Library::cpu_flash:
      std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad, h.q, h.k, h.v, out, kept[1], 0.0, causal);
      break;
    case Library::math: {
      const Tensor k = grouped(h.k, heads), v = grouped(h.v, heads),
                   p = probabilities(*this, h.q, k);
      const Tensor dp = at::matmul(grad, v.transpose(-1, -2));
      const Tensor ds = (dp - (dp * p).sum(-1, /*keepdim=*/true))
                            .mul_(p)
                            .mul_(1.0 / std::sqrt(static_cast<double>(head_dim)));
      dq = at::matmul(ds, k);
      dk = summed_over_group(at::matmul(ds.transpose(-1, -2), h.q).contiguous(), kv_heads);
      dv = summed_over_group(at::matmul(p.transpose(-1, -2), grad).contiguous(), kv_heads);
      break;
    }
  }
  const Tensor dqkv = empty_tensor({batch, tokens, heads + 2 * kv_heads, head_dim},
                                   qkv.scalar_type(), qkv.device());
  rope_backward(dq, dk, dv, dqkv, rope);
  return dqkv.view({batch, tokens, joint_width()});
}

int64_t Attention::kept_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu) const {
  const int64_t out = batch * tokens * width() * dtype_bytes(compute);
  if (kind == AttentionKind::math || (on_gpu && dtype_bytes(compute) > 2)) return out;
  const int64_t lse =
      batch * heads * tokens * dtype_bytes(compute == at::kDouble ? at::kDouble : at::kFloat);
  return out + lse + (on_gpu ? 2 * dtype_bytes(at::kLong) : 0);  // and what dropout would draw from
}

int64_t Attention::flops(int64_t batch, int64_t tokens) const {
  return 4 * batch * tokens * tokens * width() / (causal ? 2 : 1);
}

}  // namespace veil
