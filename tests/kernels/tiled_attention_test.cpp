// Attention by tiles against scores written out in fp64.
#include "kernels/tiled_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

namespace veil {
namespace {

struct AttentionResults {
  Tensor out, log_sums, dq, dk, dv;
};

std::vector<Tensor> all_of(const AttentionResults& r) {
  return {r.out, r.log_sums, r.dq, r.dk, r.dv};
}

AttentionResults by_tiles(const TiledAttention& a, const Tensor& qkv, const Tensor& d_out) {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1);
  // what is not written would show
  const auto unwritten = [&](at::IntArrayRef sizes) {
    return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), qkv.options());
  };
  AttentionResults r;
  r.out = unwritten({batch, tokens, a.heads, a.head_dim});
  r.log_sums = unwritten({batch, a.heads, tokens});
  r.dq = unwritten({batch, tokens, a.heads, a.head_dim});
  r.dk = unwritten({batch, tokens, a.kv_heads, a.head_dim});
  r.dv = unwritten({batch, tokens, a.kv_heads, a.head_dim});
  tiled_attention(a, qkv, r.out, r.log_sums);
  tiled_attention_backward(a, d_out, qkv, r.out, r.log_sums, r.dq, r.dk, r.dv);
  return r;
}

// In fp64, and how far fp32 may be from it, number by number.
struct WrittenOut {
  AttentionResults results, bounds;
};

double greatest_of(const Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

WrittenOut written_out(const TiledAttention& a, const Tensor& qkv, const Tensor& d_out) {
  const int64_t tokens = qkv.size(1), group = a.heads / a.kv_heads;
  const Tensor heads = qkv.transpose(1, 2), grad = d_out.transpose(1, 2);
  const auto for_all = [&](int64_t first) {
    return heads.narrow(1, first, a.kv_heads).repeat_interleave(group, 1);
  };
  const auto of_group = [&](const Tensor& x) {
    return x.reshape({x.size(0), a.kv_heads, group, tokens, a.head_dim}).sum(2).transpose(1, 2);
  };
  const Tensor q = heads.narrow(1, 0, a.heads), k = for_all(a.heads),
               v = for_all(a.heads + a.kv_heads);
  Tensor scores = at::matmul(q, k.transpose(-1, -2)) * a.scale;
  if (a.causal)
    scores.masked_fill_(at::ones({tokens, tokens}, at::kBool).triu(1),
                        -std::numeric_limits<double>::infinity());
  const Tensor p = at::softmax(scores, -1), dp = at::matmul(grad, v.transpose(-1, -2));
  const Tensor ds = p * (dp - (dp * p).sum(-1, /*keepdim=*/true)) * a.scale;
  WrittenOut w;
  w.results.out = at::matmul(p, v).transpose(1, 2);
  w.results.log_sums = scores.logsumexp(-1) / std::numbers::ln2;
  w.results.dq = at::matmul(ds, k).transpose(1, 2);
  w.results.dk = of_group(at::matmul(ds.transpose(-1, -2), q));
  w.results.dv = of_group(at::matmul(p.transpose(-1, -2), grad));

  // A sum of n products is off by n roundings of their magnitudes. A score's error is the relative
  // error of its share, and the mean of a row's errors that of its sum. Sixteen roundings are those
  // of the exponential, of its argument's scale and of the division.
  const double rounding = std::ldexp(1.0, -24);
  const double dim = static_cast<double>(a.head_dim) * rounding,
               row = static_cast<double>(tokens) * rounding,
               column = static_cast<double>(tokens * group) * rounding, few = 16 * rounding;
  const auto mean = [&](const Tensor& x) { return (p * x).sum(-1, /*keepdim=*/true); };
  const auto turned = [](const Tensor& x) { return x.transpose(-1, -2); };
  const Tensor score = at::matmul(q.abs(), turned(k.abs())) * (a.scale * (dim + few));
  const Tensor log_sum = mean(score) + row + few * (1 + w.results.log_sums.abs().unsqueeze(-1));
  const Tensor share = p * (score + log_sum + few);  // absolute
  const Tensor dp_size = at::matmul(grad.abs(), turned(v.abs())), dot_size = mean(dp_size);
  const Tensor dot = (share * dp_size).sum(-1, true) + dot_size * (2 * dim + row);
  const Tensor ds_error =
      a.scale * (share * (dp - mean(dp)).abs() + p * (dp_size * dim + dot)) + few * ds.abs();
  w.bounds.out = (at::matmul(share, v.abs()) + row * at::matmul(p, v.abs())).transpose(1, 2);
  w.bounds.log_sums = log_sum.squeeze(-1) / std::numbers::ln2;
  w.bounds.dq =
      (at::matmul(ds_error, k.abs()) + row * at::matmul(ds.abs(), k.abs())).transpose(1, 2);
  w.bounds.dk = of_group(at::matmul(turned(ds_error), q.abs()) +
                         column * at::matmul(turned(ds.abs()), q.abs()));
  w.bounds.dv =
      of_group(at::matmul(turned(share), grad.abs()) + column * at::matmul(turned(p), grad.abs()));
  return w;
}

void expect_within(const Tensor& made, const Tensor& truth, const Tensor& bound,
                   const std::string& what) {
  EXPECT_TRUE(((made - truth).abs() <= bound).all().item<bool>())
      << what << ": off by " << greatest_of(made - truth) << ", and "
      << greatest_of((made - truth) / bound) << " times what is allowed";
}

// One token, tiles that are filled, begun and nearly filled; heads that share keys; widths of one
// and several pieces.
TEST(TiledAttention, IsAttentionWrittenOut) {
  at::manual_seed(7);
  for (const bool causal : {true, false}) {
    for (const int64_t tokens : {1, 15, 63, 64, 65, 200}) {
      for (const auto& [heads, kv_heads, head_dim] :
           {std::tuple<int64_t, int64_t, int64_t>{2, 2, 16}, {4, 2, 32}, {3, 1, 80}}) {
        const TiledAttention a = {heads, kv_heads, head_dim, causal,
                                  1 / std::sqrt(static_cast<double>(head_dim))};
        const Tensor qkv = at::randn({2, tokens, heads + 2 * kv_heads, head_dim}),
                     d_out = at::randn({2, tokens, heads, head_dim});
        const AttentionResults r = by_tiles(a, qkv, d_out);
        const WrittenOut w = written_out(a, qkv.to(at::kDouble), d_out.to(at::kDouble));
        const std::string of = fmt::format(" of {} tokens, {} and {} heads of {}{}", tokens, heads,
                                           kv_heads, head_dim, causal ? ", causal" : "");
        expect_within(r.out, w.results.out, w.bounds.out, "out" + of);
        expect_within(r.log_sums, w.results.log_sums, w.bounds.log_sums, "logarithms" + of);
        expect_within(r.dq, w.results.dq, w.bounds.dq, "dq" + of);
        expect_within(r.dk, w.results.dk, w.bounds.dk, "dk" + of);
        expect_within(r.dv, w.results.dv, w.bounds.dv, "dv" + of);
        // Tight enough to notice one missing key of 200.
        EXPECT_LT(greatest_of(w.bounds.out), 1e-3) << of;
        EXPECT_LT(greatest_of(w.bounds.dv), 1e-3 * greatest_of(w.results.dv)) << of;
        if (tokens == 1) continue;  // a single share has no gradient
        EXPECT_LT(greatest_of(w.bounds.dq), 0.02 * greatest_of(w.results.dq)) << of;
        EXPECT_LT(greatest_of(w.bounds.dk), 0.02 * greatest_of(w.results.dk)) << of;
      }
    }
  }
}

TEST(TiledAttention, ScoresThatWouldOverflowOrVanishStayFinite) {
  const TiledAttention a = {2, 1, 16, true, 1.0};
  at::manual_seed(8);
  const Tensor qkv = at::randn({1, 150, 4, 16}) * 30, d_out = at::randn({1, 150, 2, 16});
  const AttentionResults r = by_tiles(a, qkv, d_out);
  for (const Tensor& made : all_of(r)) EXPECT_TRUE(made.isfinite().all().item<bool>());
  const WrittenOut w = written_out(a, qkv.to(at::kDouble), d_out.to(at::kDouble));
  EXPECT_GT(greatest_of(w.results.log_sums), 1000);  // e^1000 is no fp32 number
  expect_within(r.log_sums, w.results.log_sums, w.bounds.log_sums, "logarithms");
}

// A sample's numbers do not depend on who else is in the batch, on the number of threads, or on
// what comes after them.
TEST(TiledAttention, BitsAreTheSamplesOwn) {
  const TiledAttention a = {4, 2, 32, true, 0.2};
  at::manual_seed(9);
  const int64_t tokens = 100, before = 70;
  Tensor qkv = at::randn({3, tokens, 8, 32});
  const Tensor d_out = at::randn({3, tokens, 4, 32});
  const AttentionResults alone =
      by_tiles(a, qkv.narrow(0, 1, 1).contiguous(), d_out.narrow(0, 1, 1).contiguous());
  const AttentionResults together = by_tiles(a, qkv, d_out);
  Tensor changed = qkv.clone();
  changed.narrow(1, before, tokens - before).fill_(100);
  EXPECT_TRUE(at::equal(by_tiles(a, changed, d_out).out.narrow(1, 0, before),
                        together.out.narrow(1, 0, before)));
  for (const int64_t other : {0, 2}) qkv[other].fill_(std::numeric_limits<double>::quiet_NaN());
  const int threads = at::get_num_threads();
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    const AttentionResults beside = by_tiles(a, qkv, d_out);
    for (size_t i = 0; i < all_of(alone).size(); ++i) {
      EXPECT_TRUE(at::equal(all_of(together)[i].narrow(0, 1, 1), all_of(alone)[i])) << i;
      EXPECT_TRUE(at::equal(all_of(beside)[i].narrow(0, 1, 1), all_of(alone)[i])) << i;
    }
  }
  at::set_num_threads(threads);
}

// Clipping leaves out samples whose gradients are not finite, so that must not get lost on the way.
TEST(TiledAttention, WhatIsNotFiniteIsSeen) {
  const TiledAttention a = {1, 1, 16, true, 1.0};
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const int64_t where : {0, 1, 2}) {  // a query, a key, a value
      at::manual_seed(10);
      Tensor qkv = at::randn({1, 80, 3, 16});
      qkv[0][70][where][3] = bad;
      const AttentionResults r = by_tiles(a, qkv, at::ones({1, 80, 1, 16}));
      EXPECT_TRUE(r.out.narrow(1, 0, 64).isfinite().all().item<bool>()) << where;
      EXPECT_FALSE(r.out.narrow(1, 70, 10).isfinite().all().item<bool>()) << where;
      EXPECT_FALSE(r.dq.isfinite().all().item<bool>()) << where << ", " << bad;
      EXPECT_FALSE(r.dk.isfinite().all().item<bool>()) << where << ", " << bad;
    }
    Tensor d_out = at::ones({1, 80, 1, 16});
    d_out[0][70][0][3] = bad;
    const AttentionResults r = by_tiles(a, at::randn({1, 80, 3, 16}), d_out);
    for (const Tensor& made : {r.dq, r.dk, r.dv}) EXPECT_FALSE(made.isfinite().all().item<bool>());
  }
}

TEST(TiledAttention, NoTokensAndNoSamplesAreNothingAndOtherWidthsAreRefused) {
  const TiledAttention a = {2, 1, 16, true, 1.0};
  for (const auto& [batch, tokens] : {std::pair<int64_t, int64_t>{0, 5}, {3, 0}})
    EXPECT_EQ(
        by_tiles(a, at::ones({batch, tokens, 4, 16}), at::ones({batch, tokens, 2, 16})).out.numel(),
        0);
  const TiledAttention odd = {2, 1, 24, true, 1.0};
  EXPECT_ANY_THROW(by_tiles(odd, at::ones({1, 5, 4, 24}), at::ones({1, 5, 2, 24})));
  EXPECT_ANY_THROW(by_tiles(a, at::ones({1, 5, 4, 32}).narrow(3, 0, 16), at::ones({1, 5, 2, 16})));
}

}  // namespace
}  // namespace veil
