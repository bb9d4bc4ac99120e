// What the operations promise beyond one call's values: any cut of a range gives the same bits, and
// rounding keeps the mean. On CPU and on the GPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/random.h"
#include "kernels/test_operations.h"
#include "kernels/update.h"
#include "optim/optimizer.h"

namespace veil {
namespace {

Tensor normal(int64_t numel, DType dtype, Device device, uint64_t seed) {
  const Tensor out = at::empty({numel}, at::TensorOptions().dtype(dtype).device(device));
  fill_normal(out, 1.0, seed, RandomDomain::inputs, 0);
  return out;
}

// Three steps over [0, numel) cut at `cuts`; the parameters, then the states, as the whole has
// them.
std::vector<Tensor> updated_in_shards(OptimizerKind kind, DType storage, DType moments,
                                      DType grad_dtype, const std::vector<int64_t>& cuts,
                                      Device device) {
  const int64_t numel = cuts.back();
  const int states = optimizer_states(kind);
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = 0.1;
  const UpdateRule rule = update_rule(options, 5);
  const Tensor param = normal(numel, storage, device, 1);
  std::vector<std::vector<Tensor>> state_pieces(static_cast<size_t>(states));
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const int64_t first = cuts[c], count = cuts[c + 1] - first;
    const Tensor shard = param.narrow(0, first, count).clone();
    Tensor state;
    if (states) state = at::zeros({states * count}, shard.options().dtype(moments));
    for (int step = 1; step <= 3; ++step) {
      const Tensor grad = normal(numel, grad_dtype, device, 100 + static_cast<uint64_t>(step))
                              .narrow(0, first, count)
                              .clone();
      update_shard(shard, grad, state, knobs_on(device, knobs_for_step(options, 0.01, step, 0.5)),
                   rule, 1000 + first);
    }
    param.narrow(0, first, count).copy_(shard);
    for (int s = 0; s < states; ++s)
      state_pieces[static_cast<size_t>(s)].push_back(state.narrow(0, s * count, count));
  }
  std::vector<Tensor> all = {param};
  for (const auto& pieces : state_pieces) all.push_back(at::cat(pieces));
  return all;
}

void shards_give_the_bits_of_the_whole(Device device) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (const auto& [storage, moments] : {std::pair{at::kFloat, at::kFloat},
                                           {at::kDouble, at::kDouble},
                                           {at::kBFloat16, at::kFloat},
                                           {at::kBFloat16, at::kBFloat16},
                                           {at::kFloat, at::kBFloat16}}) {
      for (const DType grad : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const std::vector<Tensor> whole =
            updated_in_shards(kind, storage, moments, grad, {0, 40'003}, device);
        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{0, 20'000, 40'003}, {0, 1, 517, 518, 40'003}}) {
          const std::vector<Tensor> parts =
              updated_in_shards(kind, storage, moments, grad, cuts, device);
          for (size_t i = 0; i < whole.size(); ++i) {
            EXPECT_TRUE(at::equal(whole[i], parts[i]))
                << name_of(kind) << " " << dtype_name(storage) << ", moments "
                << dtype_name(moments) << " by " << dtype_name(grad) << ", tensor " << i;
          }
        }
      }
    }
  }
}

void any_split_of_a_fill_gives_the_same_values(Device device) {
  for (const auto fill : {fill_uniform, fill_normal}) {
    for (const DType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const Tensor whole = at::empty({40'003}, at::TensorOptions().dtype(dtype).device(device));
      fill(whole, 0.5, 3, RandomDomain::parameters, 6);
      const Tensor parts = at::zeros_like(whole);
      const std::vector<int64_t> cuts = {0, 1, 3, 8, 9, 20'001, 40'003};
      for (size_t c = 0; c + 1 < cuts.size(); ++c) {
        fill(parts.narrow(0, cuts[c], cuts[c + 1] - cuts[c]), 0.5, 3, RandomDomain::parameters,
             6 + cuts[c]);
      }
      EXPECT_TRUE(at::equal(whole, parts)) << dtype_name(dtype);
      for (const auto& [seed, domain, first] :
           {std::tuple{uint64_t{4}, RandomDomain::parameters, 6},
            {3, RandomDomain::inputs, 6},
            {3, RandomDomain::parameters, 7}}) {
        const Tensor other = at::empty_like(whole);
        fill(other, 0.5, seed, domain, first);
        EXPECT_FALSE(at::equal(whole, other)) << "seed, domain and index all count";
      }
    }
  }
}

void moments_are_those_of_the_distribution(Device device) {
  const int64_t n = 4'000'000;
  const double root = std::sqrt(static_cast<double>(n));
  const Tensor x = at::empty({n}, at::TensorOptions().dtype(at::kFloat).device(device));
  auto moment = [&](int power) { return x.to(at::kDouble).pow(power).mean().item<double>(); };
  // Five standard errors of each moment: for N(0, 1) the variance of x^k is E x^2k - (E x^k)^2.
  fill_normal(x, 1.0, 9, RandomDomain::inputs, 0);
  EXPECT_NEAR(moment(1), 0, 5 / root);
  EXPECT_NEAR(moment(2), 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moment(3), 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moment(4), 3, 5 * std::sqrt(96.0) / root);
  const Tensor pairs = x.to(at::kDouble);
  EXPECT_NEAR((pairs.narrow(0, 0, n - 1) * pairs.narrow(0, 1, n - 1)).mean().item<double>(), 0,
              5 / root)
      << "neighbours are independent";
  fill_uniform(x, 1.0, 9, RandomDomain::inputs, 0);
  EXPECT_NEAR(moment(1), 0, 5 * std::sqrt(1.0 / 3) / root);
  EXPECT_NEAR(moment(2), 1.0 / 3, 5 * std::sqrt(4.0 / 45) / root);
  EXPECT_GE(x.min().item<double>(), -1.0);
  EXPECT_LT(x.max().item<double>(), 1.0);
}

// SGD with the rate 1 on bf16 ones: p - g is exact in fp32, so that what remains is the rounding
// alone.
Tensor rounded_after(double grad, double step, int64_t first_index, Device device,
                     int64_t numel = 200'000, double start = 1.0) {
  const Tensor param =
      at::full({numel}, start, at::TensorOptions().dtype(at::kBFloat16).device(device));
  const Tensor grads = at::full({numel}, grad, param.options().dtype(at::kFloat));
  UpdateKnobs knobs;
  knobs.learning_rate = 1;
  knobs.step = step;
  update_shard(param, grads, {}, knobs_on(device, knobs), update_rule({}, 5), first_index);
  return param;
}

void bf16_updates_keep_the_mean(Device device) {
  // 1 - 2^-11 lies an eighth of the way from 1 to the bf16 number below, 1 - 2^-8; plain rounding
  // would never leave 1.
  const Tensor rounded = rounded_after(std::ldexp(1.0, -11), 1, 0, device);
  const double n = static_cast<double>(rounded.numel());
  const double moved = (rounded != 1).to(at::kDouble).sum().item<double>() / n;
  EXPECT_NEAR(moved, 0.125, 5 * std::sqrt(0.125 * 0.875 / n));
  EXPECT_EQ(rounded.min().item<double>(), 1 - std::ldexp(1.0, -8));
  EXPECT_EQ(rounded.max().item<double>(), 1.0);
  EXPECT_FALSE(at::equal(rounded, rounded_after(std::ldexp(1.0, -11), 2, 0, device)))
      << "each step draws anew";
  EXPECT_FALSE(at::equal(rounded, rounded_after(std::ldexp(1.0, -11), 1, 4, device)))
      << "each element has its own draw";
}

// With momentum 1 and the rate 2^-11, a bf16 parameter and its bf16 moment, both 1, go an eighth of
// the way to the number below.
void bf16_moments_keep_the_mean(Device device) {
  const int64_t numel = 200'000;
  const double eighth = std::ldexp(1.0, -11), n = static_cast<double>(numel);
  const Tensor param =
      at::full({numel}, 1.0, at::TensorOptions().dtype(at::kBFloat16).device(device));
  const Tensor moment = param.clone(),
               grads = at::full({numel}, -eighth, param.options().dtype(at::kFloat));
  OptimizerOptions options;
  options.kind = OptimizerKind::sgd_momentum;
  options.momentum = 1;
  UpdateKnobs knobs;
  knobs.learning_rate = eighth;
  knobs.step = 1;
  update_shard(param, grads, moment, knobs_on(device, knobs), update_rule(options, 5), 0);
  const Tensor param_moved = (param != 1).to(at::kDouble),
               moment_moved = (moment != 1).to(at::kDouble);
  const double error = 5 * std::sqrt(0.125 * 0.875 / n);
  EXPECT_NEAR(param_moved.sum().item<double>() / n, 0.125, error);
  EXPECT_NEAR(moment_moved.sum().item<double>() / n, 0.125, error);
  EXPECT_EQ(moment.min().item<double>(), 1 - std::ldexp(1.0, -8));
  EXPECT_NEAR((param_moved * moment_moved).sum().item<double>() / n, 0.125 * 0.125, error)
      << "the two roundings of an element are independent";
}

void what_is_not_finite_passes_and_the_largest_number_stays(Device device) {
  const double largest = std::ldexp(255.0, 120);  // bf16's
  auto all = [&](const Tensor& tensor, double value) {
    return tensor.eq(value).all().item<bool>();
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(all(rounded_after(-infinity, 1, 0, device, 1000), infinity));
  EXPECT_TRUE(all(rounded_after(infinity, 1, 0, device, 1000), -infinity));
  EXPECT_TRUE(rounded_after(std::nan(""), 1, 0, device, 1000).isnan().all().item<bool>());
  // Half a unit beyond: below fp32's largest, but nothing in bf16 lies above.
  EXPECT_TRUE(all(rounded_after(-std::ldexp(1.0, 119), 1, 0, device, 1000, largest), largest));
  EXPECT_TRUE(all(rounded_after(std::ldexp(1.0, 119), 1, 0, device, 1000, -largest), -largest));
}

TEST(Splits, ShardsAreUpdatedToTheBitsOfTheWhole) {
  shards_give_the_bits_of_the_whole(cpu_device());
}
TEST(Splits, AnySplitOfAFillGivesTheSameValues) {
  any_split_of_a_fill_gives_the_same_values(cpu_device());
}
TEST(Splits, MomentsAreThoseOfTheDistribution) {
  moments_are_those_of_the_distribution(cpu_device());
}
TEST(Splits, UpdatesOfBf16KeepTheMean) {
  bf16_updates_keep_the_mean(cpu_device());
}
TEST(Splits, MomentsInBf16KeepTheMean) {
  bf16_moments_keep_the_mean(cpu_device());
}
TEST(Splits, WhatIsNotFinitePassesAndTheLargestNumberStays) {
  what_is_not_finite_passes_and_the_largest_number_stays(cpu_device());
}

class GpuSplits : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    gpu_ = gpu_device(0);
  }
  Device gpu_ = cpu_device();
};

TEST_F(GpuSplits, ShardsAreUpdatedToTheBitsOfTheWhole) {
  shards_give_the_bits_of_the_whole(gpu_);
}
TEST_F(GpuSplits, AnySplitOfAFillGivesTheSameValues) {
  any_split_of_a_fill_gives_the_same_values(gpu_);
}
TEST_F(GpuSplits, MomentsAreThoseOfTheDistribution) {
  moments_are_those_of_the_distribution(gpu_);
}
TEST_F(GpuSplits, UpdatesOfBf16KeepTheMean) {
  bf16_updates_keep_the_mean(gpu_);
}
TEST_F(GpuSplits, MomentsInBf16KeepTheMean) {
  bf16_moments_keep_the_mean(gpu_);
}
TEST_F(GpuSplits, WhatIsNotFinitePassesAndTheLargestNumberStays) {
  what_is_not_finite_passes_and_the_largest_number_stays(gpu_);
}

// Where the arithmetic is exact the rounding's random bits decide alone: all 16 of them are the
// CPU's.
TEST_F(GpuSplits, RoundingDrawsTheBitsOfTheCpu) {
  for (const double grad : {std::ldexp(1.0, -11), std::ldexp(1.0, -24), std::ldexp(65535.0, -24)}) {
    const Tensor on_cpu = rounded_after(grad, 7, 1003, cpu_device()),
                 on_gpu = rounded_after(grad, 7, 1003, gpu_);
    EXPECT_TRUE(at::equal(on_cpu, on_gpu.cpu())) << grad;
  }
}

}  // namespace
}  // namespace veil
