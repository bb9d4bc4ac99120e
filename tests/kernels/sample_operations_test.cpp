// Sums over samples, norms a sample and the noisy update: CPU against what they are, GPU against
// CPU, over odd shapes, types and places.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/coefficients.h"
#include "kernels/embedding_grad.h"
#include "kernels/noisy_update.h"
#include "kernels/sample_combine.h"
#include "kernels/sample_norm.h"
#include "kernels/test_operations.h"
#include "kernels/update.h"
#include "optim/optimizer.h"

namespace veil {
namespace {

struct Shape {
  int64_t samples, width, offset, stride;
};
const std::vector<Shape> kShapes = {{1, 1, 0, 1},       {2, 7, 0, 9},         {3, 64, 0, 64},
                                    {3, 1000, 3, 1024}, {2, 70001, 8, 70016}, {5, 33, 1, 48}};
const std::vector<DType> kTypes = {at::kDouble, at::kFloat, at::kBFloat16};

Tensor rows(const Shape& shape, DType dtype, int64_t seed = 1) {
  const Tensor all = at::randn({shape.samples, shape.stride + shape.offset}, at::kDouble) *
                     (1 + 0.1 * static_cast<double>(seed));
  return all.to(dtype);
}

double apart(const Tensor& got, const Tensor& expected) {
  return (got.cpu().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>() /
         std::max(1e-12, expected.to(at::kDouble).abs().max().item<double>());
}

void everything_agrees(Device device) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kTypes) {
      SCOPED_TRACE(fmt::format("{} x {} at {} {}", shape.samples, shape.width, shape.offset,
                               dtype_name(dtype)));
      const Tensor all = rows(shape, dtype), wide = all.to(at::kDouble);
      const Tensor x = all.to(device).narrow(1, shape.offset, shape.width);
      const Tensor of_x = wide.narrow(1, shape.offset, shape.width);
      const auto doubles = at::TensorOptions(at::kDouble);
      const double allowed = dtype == at::kDouble ? 1e-13 : 1e-6;

      const Tensor squared = at::zeros({3, shape.samples + 1}, doubles.device(device));
      const int64_t half = shape.width / 2;
      add_segment_norms(all.to(device),
                        {{shape.offset, half, 2}, {shape.offset + half, shape.width - half, 0}},
                        squared, 1);
      EXPECT_LE(apart(squared.select(0, 0).narrow(0, 1, shape.samples),
                      of_x.narrow(1, half, shape.width - half).square().sum(1)),
                allowed);
      if (half > 0) {
        EXPECT_LE(apart(squared.select(0, 2).narrow(0, 1, shape.samples),
                        of_x.narrow(1, 0, half).square().sum(1)),
                  allowed);
      }
      EXPECT_EQ(squared.cpu().select(0, 1).abs().sum().item<double>(), 0);

      const DType sums = sum_dtype(dtype);
      const Tensor precise = at::randn({shape.samples, shape.width + 3}, doubles).to(sums),
                   from = precise.to(device).narrow(1, 2, shape.width),
                   to = at::zeros_like(all.to(device));
      const Tensor copied = to.narrow(1, shape.offset, shape.width),
                   norms = at::zeros({3, shape.samples}, doubles.device(device)).fill_(1);
      copy_normed(from, copied, {{0, half, 2}, {half, shape.width - half, 0}}, norms);
      const Tensor rounded = precise.narrow(1, 2, shape.width).to(dtype),
                   squares = rounded.to(at::kDouble).square();
      const Tensor beside = at::zeros_like(all);  // and nothing else
      beside.narrow(1, shape.offset, shape.width).copy_(rounded);
      EXPECT_TRUE(at::equal(to.cpu(), beside));
      EXPECT_LE(apart(norms[2], squares.narrow(1, 0, half).sum(1) + 1), allowed);
      EXPECT_LE(apart(norms[0], squares.narrow(1, half, shape.width - half).sum(1) + 1), allowed);
      EXPECT_EQ(apart(norms[1], at::zeros({shape.samples}, doubles).fill_(1)), 0);

      Tensor totals = at::zeros({shape.samples}, doubles.device(device));
      const Tensor one = x.contiguous(), other = (of_x * 0.5 + 1).to(dtype);
      add_sample_products(one, other.to(device), 2, totals);
      EXPECT_LE(apart(totals, (of_x * other.to(at::kDouble)).sum(1) * 2), 10 * allowed);

      totals.zero_();
      add_outer_norms(x, other.to(device), totals);
      EXPECT_LE(apart(totals, of_x.square().sum(1) * other.to(at::kDouble).square().sum(1)),
                10 * allowed);

      Tensor coefficients = at::randn({shape.samples}, doubles).abs_();
      coefficients[shape.samples - 1] = 0;
      Tensor poisoned = all.clone();
      poisoned.select(0, shape.samples - 1).fill_(std::numeric_limits<double>::quiet_NaN());
      const Tensor bad = poisoned.to(device).narrow(1, shape.offset, shape.width);
      const Tensor expected = (of_x * coefficients.unsqueeze(1)).sum(0);
      const DType real = dtype == at::kDouble ? at::kDouble : at::kFloat;
      Tensor out = at::zeros({shape.width}, at::TensorOptions(real).device(device)).fill_(3);
      combine_samples(bad, coefficients.to(device), out, /*add=*/true);
      EXPECT_LE((out.cpu().to(at::kDouble) - expected - 3).abs().max().item<double>(), 1e-5);
      combine_samples(bad, coefficients.to(device), out, /*add=*/false);
      EXPECT_LE((out.cpu().to(at::kDouble) - expected).abs().max().item<double>(), 1e-5);
      const Tensor scaled =
          at::zeros({shape.samples, shape.width}, at::TensorOptions(real).device(device));
      scale_samples(bad, coefficients.to(device), scaled, /*select=*/false);
      EXPECT_LE(apart(scaled, of_x * coefficients.unsqueeze(1) + 1e-30), 1e-5);
    }
  }
}

TEST(SampleOperations, AgreeWithPlainSums) {
  everything_agrees(cpu_device());
}

TEST(GpuSampleOperations, AgreeWithPlainSums) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  everything_agrees(gpu_device(0));
}

void tables_agree(Device device) {
  for (DType dtype : kTypes) {
    for (const auto& [samples, tokens, width] : {std::tuple{1, 1, 1}, {3, 17, 33}, {2, 130, 64}}) {
      SCOPED_TRACE(fmt::format("{} x {} x {} {}", samples, tokens, width, dtype_name(dtype)));
      const int64_t vocabulary = 11;
      const Tensor ids = at::randint(vocabulary, {samples, tokens}, at::kLong);
      const Tensor g = at::randn({samples, tokens, width}, at::kDouble).to(dtype);
      Tensor expected = at::zeros({samples}, at::kDouble),
             sums = at::zeros({vocabulary, width}, at::kDouble);
      Tensor coefficients = at::randn({samples}, at::kDouble).abs_();
      if (samples > 1) coefficients[0] = 0;
      for (int64_t i = 0; i < samples; ++i) {
        Tensor own = at::zeros({vocabulary, width}, at::kDouble);
        own.index_add_(0, ids[i], g[i].to(at::kDouble));
        expected[i] = own.square().sum();
        sums += own * coefficients[i];
      }
      const Tensor totals = at::zeros({samples}, at::TensorOptions(at::kDouble).device(device));
      add_embedding_norms(ids.to(device), g.to(device), vocabulary, totals);
      EXPECT_LE(apart(totals, expected), dtype == at::kDouble ? 1e-12 : 1e-5);
      const Tensor out = at::zeros(
          {vocabulary, width},
          at::TensorOptions(dtype == at::kDouble ? at::kDouble : at::kFloat).device(device));
      embedding_grad(ids.to(device).view({-1}), g.to(device).view({-1, width}), out,
                     /*accumulate=*/false, coefficients.to(device));
      EXPECT_LE((out.cpu().to(at::kDouble) - sums).abs().max().item<double>(), 1e-4);

      const Tensor columns =
          at::zeros({samples, tokens, 5}, at::TensorOptions(dtype).device(device));
      const Tensor chosen = at::randint(40, {samples, 5}, at::kLong);
      gather_columns(g.to(device), chosen.to(device), 3, columns);
      for (int64_t s = 0; s < 5; ++s) {
        const int64_t column = chosen[0][s].item<int64_t>() - 3;
        const double got = columns.cpu()[0][0][s].item<double>();
        EXPECT_EQ(got, column >= 0 && column < width ? g[0][0][column].item<double>() : 0);
      }
    }
  }
}

TEST(SampleOperations, TablesAgreeWithPlainSums) {
  tables_agree(cpu_device());
}

TEST(GpuSampleOperations, TablesAgreeWithPlainSums) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  tables_agree(gpu_device(0));
}

struct NoisyCase {
  OptimizerKind kind;
  DType param, moments, grad;
  int64_t numel, element, index, samples;
};

std::vector<NoisyCase> noisy_cases() {
  std::vector<NoisyCase> cases;
  for (OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (DType param : kTypes) {
      std::vector<DType> states = {param == at::kDouble ? at::kDouble : at::kFloat};
      if (kind != OptimizerKind::sgd && param != at::kDouble) states.push_back(at::kBFloat16);
      for (DType moments : states) {
        for (DType grad : kTypes) {
          for (const auto& [numel, element, index] : {std::tuple{1, 0, 0},
                                                      {100, 5, 5},
                                                      {4099, 24, 8},
                                                      {1200, 12, 40},
                                                      {37, 3, 3},
                                                      {2048, 16, 16}}) {
            for (int64_t samples : {0, 1, 2, 4, 11})
              cases.push_back({kind, param, moments, grad, numel, element, index, samples});
          }
        }
      }
    }
  }
  return cases;
}

// Rows as a unit's kept gradients lie, where the quick kernel takes them.
Tensor sample_rows(const Tensor& rows) {
  const int64_t stride = (rows.size(1) + 31) / 16 * 16;
  const Tensor wide = at::zeros({rows.size(0), stride}, rows.options());
  return wide.narrow(1, 0, rows.size(1)).copy_(rows);
}

void move_to(Device device, NoisyUpdate& of) {
  if (of.coefficients.defined()) {
    of.grad = sample_rows(of.grad.to(device));
    of.coefficients = of.coefficients.to(device);
  }
  for (Tensor* tensor : {&of.param, &of.m, &of.v, &of.grad}) {
    if (tensor->defined() && tensor->device() != device) *tensor = tensor->to(device);
  }
}

NoisyUpdate noisy_update_of(const NoisyCase& c) {
  NoisyUpdate of;
  of.param = at::randn({c.numel}, at::kDouble).to(c.param);
  if (c.kind != OptimizerKind::sgd) of.m = at::randn({c.numel}, at::kDouble).to(c.moments);
  if (c.kind == OptimizerKind::adamw) of.v = at::randn({c.numel}, at::kDouble).abs().to(c.moments);
  of.grad = at::randn({c.numel}, at::kDouble).to(c.grad);
  if (c.samples) {
    of.grad = sample_rows(at::randn({c.samples, c.numel}, at::kDouble).to(c.grad));
    of.coefficients = at::randn({c.samples}, at::kDouble).abs();
    // One is left out, whatever its numbers are.
    const int64_t left_out = c.numel % c.samples;
    of.grad[left_out].fill_(std::numeric_limits<double>::quiet_NaN());
    of.coefficients[left_out] = 0;
  }
  of.first_index = c.index;
  of.parameter = 4;
  of.first_element = c.element;
  return of;
}

// Stochastic rounding may fall to either side of a value that differs in its last bit.
void expect_agrees(const Tensor& got, const Tensor& expected) {
  if (!expected.defined()) return;
  const DType dtype = expected.scalar_type();
  // All that enters is of order 1, and what comes out may cancel.
  const double scale = std::max(1.0, expected.to(at::kDouble).abs().max().item<double>());
  EXPECT_LE(
      (got.cpu().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>() / scale,
      dtype == at::kBFloat16 ? 8e-3
      : dtype == at::kFloat  ? 1e-5
                             : 1e-12);
  if (dtype == at::kBFloat16) {
    EXPECT_LE((got.cpu() != expected).sum().item<double>(),
              1 + 0.01 * static_cast<double>(expected.numel()));
  }
}

Tensor update_knobs() {
  Tensor knobs = at::zeros({8}, at::kDouble);
  const double values[] = {0.1, 0.25, 0.1, 0.05, 3};
  for (int64_t k = 0; k < 5; ++k) knobs[k] = values[k];
  return knobs;
}

Tensor noise_knobs(double deviation) {
  Tensor noise = at::zeros({2}, at::kDouble);
  noise[0] = 3;
  noise[1] = deviation;
  return noise;
}

// The fused update is combine, noise and update one after another, wherever the range begins.
TEST(GpuSampleOperations, TheNoisyUpdateIsTheCpus) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  const Tensor knobs = update_knobs(), noise = noise_knobs(0.7);
  for (const NoisyCase& c : noisy_cases()) {
    SCOPED_TRACE(fmt::format("{} {} moments {} {} of {} from {} samples {}",
                             static_cast<int>(c.kind), dtype_name(c.param), dtype_name(c.moments),
                             dtype_name(c.grad), c.numel, c.element, c.samples));
    const UpdateRule rule{c.kind, 0.9, 0.9, 0.95, 1e-8, 0.1, 11};
    const NoisyUpdate on_cpu = noisy_update_of(c);
    NoisyUpdate on_gpu = on_cpu;
    move_to(gpu, on_gpu);
    NoiseSource source;
    source.key.word[2] = 9;
    noisy_update(on_cpu, knobs, rule, noise, source);
    noisy_update(on_gpu, knobs.to(gpu), rule, noise.to(gpu), source);
    expect_agrees(on_gpu.param, on_cpu.param);
    expect_agrees(on_gpu.m, on_cpu.m);
    expect_agrees(on_gpu.v, on_cpu.v);
  }
}

// Samples summed in groups, as ranks' sums are: the bits of the groups' sums added one after another.
TEST(SampleOperations, GroupsOfSamplesAreSummedFirst) {
  const Tensor knobs = update_knobs(), noise = noise_knobs(0.7);
  const UpdateRule rule{OptimizerKind::sgd, 0.9, 0.9, 0.95, 1e-8, 0.1, 11};
  const NoiseSource source;
  for (const int64_t numel : {5, 1024, 40'003}) {
    for (const auto& [samples, together] : {std::pair{6, 2}, {3, 1}, {7, 3}}) {
      SCOPED_TRACE(fmt::format("{} of {} by {}", samples, numel, together));
      NoisyUpdate of;
      of.param = at::randn({numel}, at::kFloat);
      of.grad = at::randn({samples, numel + 3}, at::kFloat).narrow(1, 1, numel);
      of.coefficients = at::randn({samples}, at::kDouble).abs();
      of.coefficients[1] = 0;
      of.grad[1].fill_(std::numeric_limits<double>::quiet_NaN());
      of.together = together;
      Tensor sum;
      for (int64_t first = 0; first < samples; first += together) {
        const int64_t count = std::min<int64_t>(together, samples - first);
        const Tensor group = at::zeros({numel}, at::kFloat);
        combine_samples(of.grad.narrow(0, first, count), of.coefficients.narrow(0, first, count),
                        group, /*add=*/false);
        sum = sum.defined() ? sum + group : group;
      }
      const Tensor before = at::randn({numel}, at::kFloat);
      for (const bool add : {false, true}) {
        const Tensor out = before.clone();
        combine_samples(of.grad, of.coefficients, out, add, together);
        EXPECT_TRUE(at::equal(out, add ? before + sum : sum));
      }
      NoisyUpdate summed = of;
      summed.param = of.param.clone();
      summed.grad = sum;
      summed.coefficients = Tensor();
      noisy_update(of, knobs, rule, noise, source);
      noisy_update(summed, knobs, rule, noise, source);
      EXPECT_TRUE(at::equal(of.param, summed.param));
    }
  }
}

// Ranges that are updated together get the bits that each gets alone: one unit's, in more launches
// than one, some too short for the quick kernel or at the wrong place for it, of summed gradients
// and of those of samples, with two sets of coefficients.
void updates_together_are_those_alone(Device device) {
  const Tensor knobs = update_knobs().to(device), noise = noise_knobs(0.7).to(device);
  constexpr int64_t kSizes[] = {4096, 20'016, 5, 48, 1000, 77}, kRanges = 72, kPlace = 20'480;
  const auto coefficients = [&] { return at::randn({3}, at::kDouble).abs().to(device); };
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (const NoiseGenerator generator :
         {NoiseGenerator::secure, NoiseGenerator::philox, NoiseGenerator::hardened}) {
      for (const DType dtype : {at::kFloat, at::kBFloat16}) {
        const UpdateRule rule{kind, 0.9, 0.9, 0.95, 1e-8, 0.1, 11};
        NoiseSource source;
        source.generator = generator;
        source.key.word[2] = 9;
        const Tensor kept =
                         at::randn({3, kRanges * kPlace}, at::kFloat).to(at::kBFloat16).to(device),
                     of_all = coefficients(), of_some = coefficients();
        std::vector<NoisyUpdate> alone, together;
        for (uint32_t i = 0; i < kRanges; ++i) {
          const int64_t numel = kSizes[i % 6], element = i % 4 == 3 ? 8 : 0;
          NoisyUpdate of = noisy_update_of(
              {kind, dtype, dtype, at::kFloat, numel, element, element + kPlace * i, 0});
          move_to(device, of);
          of.parameter = i;
          if (i % 5 != 4) {
            of.grad = kept.narrow(1, i * kPlace, numel);
            of.coefficients = i % 7 == 6 ? of_some : of_all;
          }
          alone.push_back(of);
          for (Tensor* tensor : {&of.param, &of.m, &of.v}) {
            if (tensor->defined()) *tensor = tensor->clone();
          }
          together.push_back(of);
        }
        for (const NoisyUpdate& of : alone) noisy_update(of, knobs, rule, noise, source);
        noisy_update(together, knobs, rule, noise, source);
        for (size_t i = 0; i < alone.size(); ++i) {
          EXPECT_TRUE(at::equal(alone[i].param, together[i].param)) << i;
          for (const auto& [one, other] :
               {std::pair(alone[i].m, together[i].m), std::pair(alone[i].v, together[i].v)}) {
            if (one.defined()) {
              EXPECT_TRUE(at::equal(one, other)) << i;
            }
          }
        }
      }
    }
  }
}
// What a rank updates of a parameter has the bits of the whole, wherever its shard is cut: noise
// has one value whoever draws it, and the rule rounds alike in whole groups and elsewhere.
void shards_have_the_bits_of_the_whole(Device device, double weight_decay) {
  constexpr int64_t kNumel = 4099;
  const Tensor knobs = update_knobs().to(device), noise = noise_knobs(0.7).to(device);
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (const NoiseGenerator generator :
         {NoiseGenerator::secure, NoiseGenerator::philox, NoiseGenerator::hardened}) {
      for (const auto& [param, grad, samples] : {std::tuple{at::kFloat, at::kFloat, 0},
                                                 {at::kFloat, at::kBFloat16, 3},
                                                 {at::kBFloat16, at::kBFloat16, 2},
                                                 {at::kDouble, at::kDouble, 2}}) {
        SCOPED_TRACE(fmt::format("{} {} {} by {} of {} samples", name_of(kind), name_of(generator),
                                 dtype_name(param), dtype_name(grad), samples));
        const UpdateRule rule{kind, 0.9, 0.9, 0.95, 1e-8, weight_decay, 11};
        NoiseSource source;
        source.generator = generator;
        source.key.word[2] = 9;
        NoisyUpdate whole = noisy_update_of(
            {kind, param, param == at::kDouble ? param : at::kFloat, grad, kNumel, 0, 0, samples});
        std::vector<NoisyUpdate> shards;
        const std::vector<int64_t> cuts = {0, 16, 21, 1000, 1008, 2053, kNumel};
        for (size_t c = 0; c + 1 < cuts.size(); ++c) {
          NoisyUpdate shard = whole;
          const int64_t count = cuts[c + 1] - cuts[c];
          for (Tensor* tensor : {&shard.param, &shard.m, &shard.v, &shard.grad}) {
            if (tensor->defined()) *tensor = tensor->narrow(-1, cuts[c], count).clone();
          }
          move_to(device, shard);
          shard.first_index = shard.first_element = cuts[c];
          noisy_update(shard, knobs, rule, noise, source);
          shards.push_back(shard);
        }
        move_to(device, whole);
        noisy_update(whole, knobs, rule, noise, source);
        for (Tensor NoisyUpdate::*part : {&NoisyUpdate::param, &NoisyUpdate::m, &NoisyUpdate::v}) {
          if (!(whole.*part).defined()) continue;
          std::vector<Tensor> parts;
          for (const NoisyUpdate& shard : shards) parts.push_back(shard.*part);
          EXPECT_TRUE(at::equal(at::cat(parts), whole.*part));
        }
      }
    }
  }
}
TEST(SampleOperations, ShardsHaveTheBitsOfTheWhole) {
  for (double weight_decay : {0.1, 0.0})
    shards_have_the_bits_of_the_whole(cpu_device(), weight_decay);
}
TEST(GpuSampleOperations, ShardsHaveTheBitsOfTheWhole) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (double weight_decay : {0.1, 0.0})
    shards_have_the_bits_of_the_whole(gpu_device(0), weight_decay);
}

// `veil verify` compares what an update drew with noise that is added alone: bit by bit.
void the_updates_noise_is_that_which_is_added(Device device) {
  for (const NoiseGenerator generator :
       {NoiseGenerator::secure, NoiseGenerator::philox, NoiseGenerator::hardened}) {
    for (const DType dtype : {at::kFloat, at::kDouble}) {
      const auto options = at::TensorOptions(dtype).device(device);
      NoiseSource source;
      source.generator = generator;
      source.key.word[2] = 9;
      NoisyUpdate of;
      of.param = at::zeros({40'003}, options);
      of.grad = at::zeros({40'003}, options);
      of.parameter = 4;
      UpdateKnobs knobs;
      knobs.learning_rate = 1;
      noisy_update(of, knobs_on(device, knobs), {}, noise_knobs(0.7).to(device), source);
      const Tensor alone = at::zeros({40'003}, options);
      add_noise(alone, NoiseKnobs{3, 0.7}, source, 4, 0);
      EXPECT_TRUE(at::equal(of.param, -alone)) << name_of(generator) << " " << dtype_name(dtype);
    }
  }
}
TEST(SampleOperations, TheUpdatesNoiseIsThatWhichIsAdded) {
  the_updates_noise_is_that_which_is_added(cpu_device());
}
TEST(GpuSampleOperations, TheUpdatesNoiseIsThatWhichIsAdded) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  the_updates_noise_is_that_which_is_added(gpu_device(0));
}
TEST(SampleOperations, ANoisyUpdateOfNoSamplesIsRefused) {
  NoisyUpdate of = noisy_update_of(
      {OptimizerKind::sgd, at::kFloat, at::kFloat, at::kFloat, 16, 0, 0, /*samples=*/1});
  of.grad = of.grad.narrow(0, 0, 0);
  of.coefficients = of.coefficients.narrow(0, 0, 0);
  EXPECT_ANY_THROW(noisy_update(of, update_knobs(), {}, noise_knobs(1), {}));
}
TEST(SampleOperations, UpdatesTogetherAreThoseAlone) {
  updates_together_are_those_alone(cpu_device());
}
TEST(GpuSampleOperations, UpdatesTogetherAreThoseAlone) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  updates_together_are_those_alone(gpu_device(0));
}

// Hardened noise through the quick kernel and its ends: plain SGD of rate 1 from 0 shows the sums.
TEST(GpuSampleOperations, TheHardenedUpdateLeavesTheLatticeOfItsSums) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  Tensor knobs = at::zeros({8}, at::kDouble);
  knobs[0] = -1;  // the learning rate
  knobs[1] = 1;   // the scale
  const Tensor noise = noise_knobs(0.7);
  const UpdateRule rule{OptimizerKind::sgd, 0, 0, 0, 0, 0, 11};
  NoiseSource source;
  source.generator = NoiseGenerator::hardened;
  source.key.word[2] = 9;
  for (const int64_t samples : {0, 1, 3}) {
    NoisyUpdate on_cpu = noisy_update_of(
        {OptimizerKind::sgd, at::kFloat, at::kFloat, at::kFloat, 40'003, 24, 8, samples});
    on_cpu.param.zero_();
    NoisyUpdate on_gpu = on_cpu;
    move_to(gpu, on_gpu);
    noisy_update(on_cpu, knobs, rule, noise, source);
    noisy_update(on_gpu, knobs.to(gpu), rule, noise.to(gpu), source);
    const Tensor made = on_gpu.param.cpu().to(at::kDouble) * 0x1p11,
                 expected = on_cpu.param.to(at::kDouble) * 0x1p11;
    EXPECT_TRUE(at::equal(made, made.round()));
    EXPECT_TRUE(at::equal(expected, expected.round()));
    EXPECT_LE((made - expected).abs().max().item<double>(), 1);
    EXPECT_LT((made != expected).to(at::kDouble).mean().item<double>(), 0x1p-6);
  }
}

// Without noise and samples it is the plain update, to the bit, whatever is rounded.
TEST(SampleOperations, ANoisyUpdateWithoutNoiseIsThePlainOne) {
  const Tensor knobs = update_knobs(), noise = noise_knobs(0);
  for (const NoisyCase& c : noisy_cases()) {
    if (c.samples > 0) continue;
    const UpdateRule rule{c.kind, 0.9, 0.9, 0.95, 1e-8, 0.1, 11};
    const NoisyUpdate noisy = noisy_update_of(c);
    const Tensor param = noisy.param.clone();
    Tensor state;
    if (noisy.m.defined())
      state = noisy.v.defined() ? at::cat({noisy.m, noisy.v}) : noisy.m.clone();
    noisy_update(noisy, knobs, rule, noise, {});
    update_shard(param, noisy.grad, state, knobs, rule, c.index);
    EXPECT_TRUE(at::equal(noisy.param, param));
    if (noisy.m.defined()) {
      EXPECT_TRUE(at::equal(noisy.m, state.narrow(0, 0, c.numel)));
    }
    if (noisy.v.defined()) {
      EXPECT_TRUE(at::equal(noisy.v, state.narrow(0, c.numel, c.numel)));
    }
  }
}

}  // namespace
}  // namespace veil
