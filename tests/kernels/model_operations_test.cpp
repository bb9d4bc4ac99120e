// What the operations of language models promise beyond the table's values: what is ignored stays
// out whatever it holds, what a caller got wrong is said, and a captured graph may hold them. On
// CPU and on the GPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/embedding_grad.h"
#include "kernels/exponential.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/squared_norm.h"
#include "kernels/test_operations.h"
#include "kernels/token_sum.h"
#include "tensor/stream.h"

namespace veil::model_operations_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Entropy {
  Tensor losses, grad, weights;
};

// One block of all columns; logits [batch * tokens, vocabulary] are left as they are.
Entropy entropy_of(const Tensor& logits, const Tensor& targets, int64_t batch) {
  const DType real = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto options = logits.options().dtype(real);
  Entropy e{at::full({batch}, 77, options.dtype(at::kDouble)), logits.clone(),
            at::full({batch}, 77, options)};
  // Whatever memory held before: rows that are ignored never get a state.
  const Tensor state = at::full({logits.size(0), 3}, std::nan(""), options);
  token_weights(targets, e.weights);
  cross_entropy_scan(e.grad, 0, targets, state);
  cross_entropy_losses(state, targets, e.weights, e.losses);
  cross_entropy_grad(e.grad, 0, targets, state, e.weights);
  return e;
}

bool all_zero(const Tensor& tensor) {
  return (tensor == 0).all().item<bool>();
}

void what_is_ignored_becomes_exactly_zero(Device device) {
  for (const DType dtype : kTypes) {
    for (const int64_t vocabulary : {5, 1024}) {
      // Two samples of three tokens; the second has none that counts.
      Tensor logits = random({6, vocabulary}, dtype);
      logits[1].fill_(std::nan(""));
      logits[3].fill_(kInfinity);
      logits[4].fill_(-kInfinity);
      logits[5].fill_(std::nan(""));
      const Tensor targets = at::tensor(
          {int64_t{1}, kIgnoreTarget, int64_t{0}, kIgnoreTarget, kIgnoreTarget, kIgnoreTarget},
          at::kLong);
      const Entropy e = entropy_of(logits.to(device), targets.to(device), 2);
      for (const int64_t row : {1, 3, 4, 5})
        EXPECT_TRUE(all_zero(e.grad[row])) << dtype_name(dtype) << " row " << row;
      EXPECT_FALSE(all_zero(e.grad[0]));
      EXPECT_EQ(e.weights[0].item<double>(), 0.5);
      EXPECT_EQ(e.weights[1].item<double>(), 0.0);
      EXPECT_TRUE(std::isfinite(e.losses[0].item<double>()));
      EXPECT_EQ(e.losses[1].item<double>(), 0.0);
    }
  }
}

// A weight of 0 takes a sample out, even one whose logits are not finite: 0 times infinity is not
// 0.
void a_weight_of_zero_selects_a_sample_out(Device device) {
  const Tensor logits = at::full({2, 8}, kInfinity, at::kFloat).to(device),
               targets = at::zeros({2}, at::kLong).to(device);
  const Tensor state = at::full({2, 3}, 77, logits.options()),
               weights = at::zeros({1}, logits.options());
  const Tensor losses = at::full({1}, 77, logits.options().dtype(at::kDouble));
  cross_entropy_scan(logits, 0, targets, state);
  cross_entropy_losses(state, targets, weights, losses);
  cross_entropy_grad(logits, 0, targets, state, weights);
  EXPECT_EQ(losses.item<double>(), 0.0);
  EXPECT_TRUE(all_zero(logits));
}

void logits_of_minus_infinity_have_no_share(Device device) {
  for (const DType dtype : kTypes) {
    for (const int64_t vocabulary : {3, 1024}) {
      Tensor logits = at::full({1, vocabulary}, -kInfinity, dtype);
      logits[0][0].fill_(2.0);
      logits[0][vocabulary - 1].fill_(2.0);
      const Entropy e = entropy_of(logits.to(device), at::zeros({1}, at::kLong).to(device), 1);
      EXPECT_NEAR(e.losses.item<double>(), std::log(2.0), 1e-6) << dtype_name(dtype);
      EXPECT_TRUE(all_zero(e.grad.narrow(1, 1, vocabulary - 2)));
      EXPECT_EQ(e.grad[0][0].item<double>(), -0.5);
    }
  }
}

void what_is_not_finite_shows_in_the_loss(Device device) {
  for (const double value : {kInfinity, std::nan("")}) {
    Tensor logits = at::zeros({2, 16}, at::kBFloat16);
    logits[1][3].fill_(value);
    const Entropy e = entropy_of(logits.to(device), at::zeros({2}, at::kLong).to(device), 2);
    EXPECT_NEAR(e.losses[0].item<double>(), std::log(16.0), 1e-5);
    EXPECT_TRUE(std::isnan(e.losses[1].item<double>())) << value;
  }
  // So does a target that no block of columns holds.
  const Tensor outside = at::full({1}, 16, at::kLong).to(device);
  EXPECT_TRUE(
      std::isnan(entropy_of(at::zeros({1, 16}).to(device), outside, 1).losses.item<double>()));
}

void the_overflow_of_squares_is_fp64s_alone(Device device) {
  const Tensor total = at::zeros({1}, at::kDouble).to(device);
  add_squared_norm(at::full({3}, 1e30, at::kFloat).to(device), total);
  EXPECT_NEAR(total.item<double>() / 3e60, 1.0, 1e-6);
}

TEST(ModelOperations, WhatIsIgnoredBecomesExactlyZero) {
  what_is_ignored_becomes_exactly_zero(cpu_device());
}
TEST(ModelOperations, AWeightOfZeroSelectsASampleOut) {
  a_weight_of_zero_selects_a_sample_out(cpu_device());
}
TEST(ModelOperations, LogitsOfMinusInfinityHaveNoShare) {
  logits_of_minus_infinity_have_no_share(cpu_device());
}
TEST(ModelOperations, WhatIsNotFiniteShowsInTheLoss) {
  what_is_not_finite_shows_in_the_loss(cpu_device());
}
TEST(ModelOperations, SquaresOfFp32DoNotOverflow) {
  the_overflow_of_squares_is_fp64s_alone(cpu_device());
}

TEST(ModelOperations, TheExponentialIsWithinTwoUnitsInTheLastPlace) {
  for (double x = -87.2; x < 88.3; x += 0.00173) {
    const float given = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(given));
    ASSERT_LE(std::abs(static_cast<double>(exponential(given)) - exact),
              exact * std::ldexp(1.0, -22))
        << given;
  }
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exponential(-1000.0f), 0.0f);
  EXPECT_GT(exponential(1000.0f), 1e38f);
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

TEST(ModelOperations, ScratchIsAGpusAlone) {
  EXPECT_EQ(norm_backward_scratch_bytes(4, 2048, 2048, at::kBFloat16, false), 0);
  EXPECT_EQ(token_sum_scratch_bytes(4, 2048, 2048, at::kBFloat16, false), 0);
  EXPECT_EQ(embedding_grad_scratch_bytes(8192, false), 0);
  EXPECT_EQ(squared_norm_scratch_bytes(1 << 20, false), 0);
  // 128 strips of 16 tokens per sample; one strip needs none.
  EXPECT_EQ(norm_backward_scratch_bytes(4, 2048, 2048, at::kBFloat16, true), 4 * 128 * 2048 * 4);
  EXPECT_EQ(norm_backward_scratch_bytes(4, 2048, 2048, at::kDouble, true), 4 * 128 * 2048 * 8);
  EXPECT_EQ(norm_backward_scratch_bytes(2, 1, 4096, at::kBFloat16, true), 0);
  EXPECT_EQ(embedding_grad_scratch_bytes(8192, true), 8192 * 16);
}

TEST(ModelOperations, WhatDoesNotMatchIsRefused) {
  const Tensor x = at::zeros({2, 8}), weight = at::zeros({8}), rstd = at::zeros({2});
  EXPECT_THROW(rms_norm(x, {}, at::zeros({7}), 1e-5, {}, x, rstd), std::logic_error);
  EXPECT_THROW(rms_norm(x, {}, weight.to(at::kHalf), 1e-5, {}, x, rstd), std::logic_error);
  EXPECT_THROW(rms_norm(x, x, weight, 1e-5, {}, x, rstd), std::logic_error)
      << "a sum with nowhere to go";
  RopeFrequencies three;
  three.count = 3;
  EXPECT_THROW(rope(at::zeros({1, 2, 1, 4}), 1, three), std::logic_error);
  EXPECT_THROW(rope(at::zeros({1, 2, 1, 6}), 2, three), std::logic_error)
      << "more heads than there are";
  const Tensor ids = at::full({1}, 3, at::kLong);
  EXPECT_THROW(embedding_grad(ids, at::zeros({1, 4}), at::zeros({3, 4}), false), std::logic_error);
  EXPECT_THROW(embedding_grad(ids, at::zeros({1, 4}), at::zeros({9, 4}, at::kDouble), false),
               std::logic_error);
}

class GpuModelOperations : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    gpu_ = gpu_device(0);
  }
  Device gpu_ = cpu_device();
};

TEST_F(GpuModelOperations, WhatIsIgnoredBecomesExactlyZero) {
  what_is_ignored_becomes_exactly_zero(gpu_);
}
TEST_F(GpuModelOperations, AWeightOfZeroSelectsASampleOut) {
  a_weight_of_zero_selects_a_sample_out(gpu_);
}
TEST_F(GpuModelOperations, LogitsOfMinusInfinityHaveNoShare) {
  logits_of_minus_infinity_have_no_share(gpu_);
}
TEST_F(GpuModelOperations, WhatIsNotFiniteShowsInTheLoss) {
  what_is_not_finite_shows_in_the_loss(gpu_);
}
TEST_F(GpuModelOperations, SquaresOfFp32DoNotOverflow) {
  the_overflow_of_squares_is_fp64s_alone(gpu_);
}

// Nothing waits for the device or reads from it, sorting included.
TEST_F(GpuModelOperations, ACapturedGraphGivesTheSameBits) {
  std::vector<Row> rows;
  for (const auto add : {add_norms, add_ropes, add_activations, add_cross_entropies,
                         add_embedding_grads, add_sums, add_modulations}) {
    add(rows);
  }
  const StreamGuard guard(Stream::create(gpu_));
  int captured = 0;
  for (const Row& row : rows) {
    if (row.name.find("bf16") == std::string::npos) continue;
    auto placed = [&] {
      Tensors inputs;
      for (const Tensor& input : row.inputs)
        inputs.push_back(input.to(gpu_, /*non_blocking=*/false, /*copy=*/true));
      return inputs;
    };
    const Tensors expected = row.run(placed()), inputs = placed();
    Tensors got;
    Graph graph = Graph::capture(gpu_, [&] { got = row.run(inputs); });
    graph.replay();
    synchronize(gpu_);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(expected[i], got[i])) << row.name << ", output " << i;
    }
    ++captured;
  }
  EXPECT_GT(captured, 100);
}

}  // namespace
}  // namespace veil::model_operations_test
