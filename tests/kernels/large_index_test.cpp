// Long sequences have more than 2^32 numbers in a tensor: kernels reach the last of them. What a
// large tensor's end becomes is what the same numbers become alone.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/column_sum.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding_grad.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/sample_combine.h"
#include "kernels/sample_norm.h"
#include "tensor/device.h"

namespace veil {
namespace {

constexpr int64_t kBeyondNumbers = (int64_t{1} << 32) + 4096;  // numbers
constexpr int64_t kLastRows = 5;                               // rows that are looked at

class GpuLargeIndex : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override {
    if (gpu_count() > 0) release_cached_memory(gpu_device(0));
  }
  static at::TensorOptions of(DType dtype) {
    return at::TensorOptions(dtype).device(gpu_device(0));
  }
  static int64_t rows_for(int64_t width) { return kBeyondNumbers / width + kLastRows; }
  // Zeros that end in `last`.
  static Tensor ending_in(const Tensor& last, int64_t rows) {
    std::vector<int64_t> dims = last.sizes().vec();
    dims[0] = rows;
    Tensor all = at::zeros(dims, last.options());
    all.narrow(0, rows - last.size(0), last.size(0)).copy_(last);
    return all;
  }
  static Tensor end_of(const Tensor& all) {
    return all.narrow(0, all.size(0) - kLastRows, kLastRows);
  }
};

TEST_F(GpuLargeIndex, Activations) {
  const int64_t width = 8192, rows = rows_for(2 * width);
  const Tensor last = at::randn({kLastRows, 2 * width}, of(at::kBFloat16));
  Tensor out = at::empty({kLastRows, width}, of(at::kBFloat16));
  swiglu(last, out);
  const Tensor all = ending_in(last, rows);
  Tensor all_out = at::full({rows, width}, 7, of(at::kBFloat16));
  swiglu(all, all_out);
  EXPECT_TRUE(at::equal(end_of(all_out), out));
  EXPECT_EQ(all_out.narrow(0, 0, rows - kLastRows).abs().max().item<double>(), 0);
  const Tensor grad = at::randn({kLastRows, width}, of(at::kBFloat16));
  Tensor d = at::empty_like(last);
  swiglu_backward(last, grad, d, {});
  swiglu_backward(all, ending_in(grad, rows), all, {});
  EXPECT_TRUE(at::equal(end_of(all), d));
}

TEST_F(GpuLargeIndex, Norms) {
  const int64_t width = 2048, rows = rows_for(width);
  const Tensor weight = at::randn({width}, of(at::kBFloat16)),
               last = at::randn({kLastRows, width}, of(at::kBFloat16));
  const auto normed = [&](const Tensor& x) {
    Tensor out = at::empty_like(x), rstd = at::empty({x.size(0)}, of(at::kFloat));
    rms_norm(x, {}, weight, 1e-5, {}, out, rstd);
    return std::pair(out, rstd);
  };
  const auto [out, rstd] = normed(last);
  const Tensor all = ending_in(last, rows);
  const auto [all_out, all_rstd] = normed(all);
  EXPECT_TRUE(at::equal(end_of(all_out), out));
  const Tensor dy = at::randn({kLastRows, width}, of(at::kBFloat16));
  const auto back = [&](const Tensor& grad, const Tensor& x, const Tensor& r) {
    Tensor sums = at::empty({1, width}, of(at::kFloat));
    rms_norm_backward(grad, x, weight, r, {}, grad, sums);
    return grad;
  };
  const Tensor all_dx = back(ending_in(dy, rows), all, all_rstd);
  EXPECT_TRUE(at::equal(end_of(all_dx), back(dy, last, rstd)));
}

TEST_F(GpuLargeIndex, Rotations) {
  const int64_t tokens = 512, heads = 48, dim = 64,
                samples = kBeyondNumbers / (tokens * heads * dim) + 2;
  RopeFrequencies frequencies;
  frequencies.count = dim / 2;
  for (int i = 0; i < frequencies.count; ++i)
    frequencies.value[i] = 1.0 / static_cast<double>(i + 1);
  Tensor one = at::randn({1, tokens, heads, dim}, of(at::kBFloat16));
  Tensor all = at::zeros({samples, tokens, heads, dim}, of(at::kBFloat16));
  all.narrow(0, samples - 1, 1).copy_(one);
  rope(one, 40, frequencies);
  rope(all, 40, frequencies);
  EXPECT_TRUE(at::equal(all.narrow(0, samples - 1, 1), one));
}

TEST_F(GpuLargeIndex, SumsOverSamples) {
  const int64_t count = kBeyondNumbers;
  const Tensor last = at::randn({2, 4096}, of(at::kBFloat16)),
               coefficients = at::full({2}, 0.5, of(at::kDouble));
  Tensor out = at::empty({4096}, of(at::kFloat));
  combine_samples(last, coefficients, out, false);
  Tensor all = at::zeros({2, count}, of(at::kBFloat16));
  all.narrow(1, count - 4096, 4096).copy_(last);
  Tensor all_out = at::full({count}, 7, of(at::kFloat));
  combine_samples(all, coefficients, all_out, false);
  EXPECT_TRUE(at::equal(all_out.narrow(0, count - 4096, 4096), out));
  EXPECT_EQ(all_out.narrow(0, 0, count - 4096).abs().max().item<double>(), 0);
  Tensor squares = at::zeros({1, 2}, of(at::kDouble)), all_squares = at::zeros_like(squares);
  add_segment_norms(last, {{0, 4096, 0}}, squares);
  add_segment_norms(all, {{0, count, 0}}, all_squares);
  EXPECT_NEAR(all_squares[0][1].item<double>(), squares[0][1].item<double>(),
              1e-5 * squares[0][1].item<double>());
}

TEST_F(GpuLargeIndex, Losses) {
  const int64_t width = 65536, rows = rows_for(width);
  const Tensor last = at::randn({kLastRows, width}, of(at::kBFloat16)),
               targets = at::randint(width, {kLastRows}, of(at::kLong));
  const auto scanned = [&](const Tensor& logits, const Tensor& wanted) {
    Tensor state = at::empty({logits.size(0), 3}, of(at::kFloat));
    cross_entropy_scan(logits, 0, wanted, state);
    return state;
  };
  const Tensor all = ending_in(last, rows), all_targets = ending_in(targets, rows);
  const Tensor state = scanned(last, targets), all_state = scanned(all, all_targets);
  EXPECT_TRUE(at::equal(end_of(all_state), state));
  const Tensor weights = at::full({1}, 1, of(at::kFloat));
  cross_entropy_grad(last, 0, targets, state, weights);
  cross_entropy_grad(all, 0, all_targets, all_state, weights);
  EXPECT_TRUE(at::equal(end_of(all), last));
}

TEST_F(GpuLargeIndex, TablesAndColumns) {
  const int64_t width = 2048, rows = rows_for(width);
  const Tensor last = at::randn({kLastRows, width}, of(at::kBFloat16));
  const Tensor ids = at::full({kLastRows}, 3, of(at::kLong));
  const auto table = [&](const Tensor& tokens, const Tensor& grad) {
    Tensor out = at::empty({8, width}, of(at::kFloat));
    embedding_grad(tokens, grad, out, false);
    return out;
  };
  const Tensor all = ending_in(last, rows);
  EXPECT_TRUE(at::equal(table(ending_in(ids, rows), all)[3], table(ids, last)[3]));
  Tensor sums = at::empty({width}, of(at::kFloat)), all_sums = at::empty_like(sums);
  column_sum(last, sums, false);
  column_sum(all, all_sums, false);
  EXPECT_LE(all_sums.sub(sums).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace veil
