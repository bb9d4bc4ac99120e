// Windows, masks and scales of attention: LibTorch's fast kernels against the scores written out.
#include "nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace veil {
namespace {

double largest(const Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// Position by position, from the definition: t sees t - window + 1 ... t.
Tensor seen_by_definition(const Attention& a, const Tensor& qkv) {
  const int64_t batch = qkv.size(0), tokens = qkv.size(1), group = a.heads / a.kv_heads;
  const Tensor heads = qkv.view({batch, tokens, a.heads + 2 * a.kv_heads, a.head_dim});
  Tensor out = at::full({batch, tokens, a.heads, a.head_dim}, 0.0, qkv.options());
  for (int64_t h = 0; h < a.heads; ++h) {
    const Tensor q = heads.select(2, h), k = heads.select(2, a.heads + h / group),
                 v = heads.select(2, a.heads + a.kv_heads + h / group);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t first = std::max<int64_t>(0, t - a.window + 1), count = t - first + 1;
      const Tensor scores =
          at::matmul(k.narrow(1, first, count), q.narrow(1, t, 1).transpose(1, 2)) *
          a.scale;  // [batch, count, 1]
      out.select(2, h).select(1, t).copy_(
          (at::softmax(scores, 1) * v.narrow(1, first, count)).sum(1));
    }
  }
  return out.view({batch, tokens, -1});
}

// Long enough that a library takes keys in several stretches, some of which are hidden as a whole.
TEST(Attention, AWindowHidesWhatLiesBeforeItInLongSequencesToo) {
  for (const auto& [tokens, window] :
       {std::pair<int64_t, int64_t>{11, 1}, {11, 4}, {11, 11}, {1300, 40}, {1300, 700}}) {
    const Attention fast = {
        .heads = 2, .kv_heads = 1, .head_dim = 4, .rope = {}, .scale = 0.7, .window = window};
    Attention math = fast;
    math.kind = AttentionKind::math;
    const Tensor qkv = at::randn({2, tokens, fast.joint_width()}, at::kDouble),
                 d_out = at::randn({2, tokens, fast.width()}, at::kDouble);
    std::vector<Tensor> kept, kept_by_math;
    const Tensor a = fast.forward(qkv, true, kept), b = math.forward(qkv, true, kept_by_math);
    EXPECT_LE(largest(a - b), 1e-12) << tokens << " tokens, window " << window;
    if (tokens < 100) {
      EXPECT_LE(largest(a - seen_by_definition(fast, qkv)), 1e-12) << window;
    }
    EXPECT_LE(largest(fast.backward(d_out, qkv, kept) - math.backward(d_out, qkv, kept_by_math)),
              1e-11)
        << tokens << " tokens, window " << window;
  }
}

TEST(Attention, PaddingIsSeenByNobodyAndASampleOfPaddingStaysFinite) {
  const int64_t tokens = 9;
  Tensor ids = at::full({3, tokens}, 5, at::kLong);
  ids[1].narrow(0, 6, 3).fill_(1);
  ids[2].fill_(1);
  for (const AttentionKind kind : {AttentionKind::automatic, AttentionKind::math}) {
    for (const DType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Attention a = {
          .heads = 2, .kv_heads = 2, .head_dim = 4, .causal = false, .kind = kind, .rope = {}};
      const Tensor mask = padding_mask(ids, 1, dtype);
      const Tensor qkv = at::randn({3, tokens, a.joint_width()}, at::kDouble).to(dtype),
                   d_out = at::randn({3, tokens, a.width()}, at::kDouble).to(dtype);
      Tensor changed = qkv.clone();
      changed[1].narrow(0, 6, 3).fill_(100);  // what padding holds does not matter
      std::vector<Tensor> kept, kept_changed, kept_short;
      const Tensor out = a.forward(qkv, true, kept, mask),
                   same = a.forward(changed, true, kept_changed, mask);
      EXPECT_EQ(largest((out - same)[1].narrow(0, 0, 6)), 0) << dtype_name(dtype);
      EXPECT_TRUE(out.isfinite().all().item<bool>());
      const Tensor grad = a.backward(d_out, qkv, kept, mask);
      EXPECT_TRUE(grad.isfinite().all().item<bool>());
      const Tensor of_padding = grad[1].narrow(0, 6, 3).narrow(1, a.width(), 2 * a.width());
      EXPECT_EQ(largest(of_padding), 0) << "keys and values of padding have a gradient";
      // as if the padding were not there
      const Tensor alone = qkv.narrow(0, 1, 1).narrow(1, 0, 6).contiguous();
      const double near = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : 2e-2;
      EXPECT_LE(largest(a.forward(alone, true, kept_short)[0] - out[1].narrow(0, 0, 6)), near);
    }
  }
}

}  // namespace
}  // namespace veil
