// Every operation over shapes (odd, tiny, empty, unaligned) and types, in one table. The CPU
// reference is held against plain ATen expressions in fp64, the CUDA kernel against the CPU
// reference. What an operation promises beyond its values (splits, rounding) is in the tests
// next to this one.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sqrt.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "kernels/philox.h"
#include "kernels/random.h"
#include "kernels/squared_error.h"
#include "kernels/test_operations.h"
#include "kernels/update.h"
#include "optim/optimizer.h"

namespace veil {
namespace {

// A copy on `device` that starts `shift` elements behind an aligned address.
Tensor place(const Tensor& tensor, Device device, int64_t shift) {
  const Tensor memory = at::empty({tensor.numel() + shift}, tensor.options().device(device));
  Tensor placed = memory.narrow(0, shift, tensor.numel()).view(tensor.sizes());
  placed.copy_(tensor);
  return placed;
}

Tensors place(const Tensors& tensors, Device device, int64_t shift) {
  Tensors placed;
  for (const Tensor& tensor : tensors) placed.push_back(place(tensor, device, shift));
  return placed;
}

void add_squared_error(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const auto& [batch, width] :
         {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {3, 7}, {17, 255}, {5, 257}, {2, 1031}}) {
      const double exact = dtype == at::kDouble ? 1e-14 : 5e-7;  // differences are taken in fp32
      table.push_back({fmt::format("squared_error {} [{}, {}]", dtype_name(dtype), batch, width),
                       {random({batch, width}, dtype), random({batch, width}, dtype)},
                       [](const Tensors& in) {
                         const Tensor grad = at::full_like(in[0], 77);
                         const Tensor losses =
                             at::full({in[0].size(0)}, 77, in[0].options().dtype(at::kDouble));
                         squared_error(in[0], in[1], grad, losses);
                         return Tensors{losses, grad};
                       },
                       [](const Tensors& in) {
                         const Tensor difference = in[0] - in[1];
                         return Tensors{
                             difference.pow(2).mean(1),
                             difference * (2.0 / static_cast<double>(difference.size(1)))};
                       },
                       {{exact, 1e-14}, {rounding_of(dtype), 0}}});
    }
  }
}

void add_add_losses(std::vector<Row>& table) {
  for (const int64_t batch : {0, 1, 255, 256, 1031}) {
    table.push_back({fmt::format("add_losses [{}]", batch),
                     {random({batch}, at::kDouble), at::full({1}, 3.25, at::kDouble)},
                     [](const Tensors& in) {
                       add_losses(in[0], in[1]);
                       return Tensors{in[1]};
                     },
                     [](const Tensors& in) { return Tensors{in[0].sum() + in[1]}; },
                     {{1e-13, 1e-13}}});
  }
}

// torch.optim.AdamW and torch.optim.SGD as their documentation writes them.
Tensors torch_update(const OptimizerOptions& options, const UpdateKnobs& knobs, const Tensors& in) {
  const Tensor p = in[0], g = in[1] * knobs.scale;
  const double lr = knobs.learning_rate;
  if (options.kind == OptimizerKind::adamw) {
    const int64_t n = p.numel();
    const Tensor decayed = p * (1 - lr * options.weight_decay);
    const Tensor m = options.beta1 * in[2].narrow(0, 0, n) + (1 - options.beta1) * g;
    const Tensor v = options.beta2 * in[2].narrow(0, n, n) + (1 - options.beta2) * g * g;
    const double corrected1 = 1 - std::pow(options.beta1, knobs.step),
                 corrected2 = 1 - std::pow(options.beta2, knobs.step);
    const Tensor denominator = at::sqrt(v) / std::sqrt(corrected2) + options.epsilon;
    return {decayed - lr / corrected1 * m / denominator, at::cat({m, v})};
  }
  const Tensor decayed = g + options.weight_decay * p;
  if (options.kind == OptimizerKind::sgd) return {p - lr * decayed};
  const Tensor buffer = options.momentum * in[2] + decayed;
  return {p - lr * buffer, buffer};
}

void add_update(std::vector<Row>& table, OptimizerKind kind, DType storage, DType state, DType grad,
                int64_t numel) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = 0.1;
  const UpdateKnobs knobs =
      knobs_for_step(options, /*learning_rate=*/0.02, /*step=*/3, /*scale=*/0.25);
  Tensors inputs = {random({numel}, storage), random({numel}, grad)};
  if (kind != OptimizerKind::sgd)
    inputs.push_back(random({optimizer_states(kind) * numel}, state).abs());
  const double arithmetic = storage == at::kDouble ? 1e-14 : 5e-7;
  // Stochastic rounding takes one of the two neighbours: a whole unit in the last place.
  const auto stored = [&](DType dtype) { return dtype == at::kBFloat16 ? 7.9e-3 : arithmetic; };
  Row row{fmt::format("update {} {} moments {} by {} [{}]", name_of(kind), dtype_name(storage),
                      dtype_name(state), dtype_name(grad), numel),
          inputs,
          [=](const Tensors& in) {
            update_shard(in[0], in[1], in.size() > 2 ? in[2] : Tensor(),
                         knobs_on(in[0].device(), knobs), update_rule(options, 11),
                         /*first_index=*/numel % 2 ? 5 : 8);
            return in.size() > 2 ? Tensors{in[0], in[2]} : Tensors{in[0]};
          },
          [=](const Tensors& in) { return torch_update(options, knobs, in); },
          // nvcc fuses products and sums
          {{stored(storage), stored(storage)}, {stored(state), stored(state)}}};
  table.push_back(std::move(row));
}

void add_updates(std::vector<Row>& table) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (const DType storage : {at::kFloat, at::kDouble, at::kBFloat16}) {
      std::vector<DType> states = {storage == at::kDouble ? at::kDouble : at::kFloat};
      if (kind != OptimizerKind::sgd && storage != at::kDouble) states.push_back(at::kBFloat16);
      for (const DType state : states) {
        for (const DType grad : kTypes) {
          for (const int64_t numel : {0, 1, 7, 1031, 2000})
            add_update(table, kind, storage, state, grad, numel);
        }
      }
    }
  }
}

void add_fills(std::vector<Row>& table) {
  for (const bool normal : {false, true}) {
    for (const DType dtype : kTypes) {
      for (const int64_t numel : {0, 1, 3, 5, 1031}) {
        for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{7}, (int64_t{1} << 33) + 2}) {
          const double scale = 0.7;
          const uint64_t seed = 0xfeedfacecafeull;
          auto expect = [=](const Tensors&) {
            Tensor out = at::empty({numel}, at::kDouble);
            for (int64_t i = 0; i < numel; ++i) {
              const auto index = static_cast<uint64_t>(first + i);
              const Philox4 words =
                  philox4x32(seed, index / 4, static_cast<uint64_t>(RandomDomain::inputs));
              auto unit = [&](uint64_t k) {
                return std::ldexp(static_cast<double>(words.word[k] >> 8), -24);
              };
              const uint64_t k = index % 4, pair = k / 2 * 2;
              const double radius = std::sqrt(-2 * std::log1p(-unit(pair))),
                           angle = 2 * M_PI * unit(pair + 1);
              const double value =
                  normal ? radius * (k % 2 ? std::sin(angle) : std::cos(angle)) : 2 * unit(k) - 1;
              out.data_ptr<double>()[i] = value * scale;
            }
            return Tensors{out};
          };
          // Values are made in fp32; the angle's rounding grows with the radius.
          const double made = normal ? 2e-6 : 1e-7,
                       stored = std::max(made, dtype == at::kDouble ? 0.0 : rounding_of(dtype));
          table.push_back(
              {fmt::format("{} {} [{}] from {}", normal ? "fill_normal" : "fill_uniform",
                           dtype_name(dtype), numel, first),
               {at::full({numel}, 77, dtype)},
               [=](const Tensors& in) {
                 (normal ? fill_normal : fill_uniform)(in[0], scale, seed, RandomDomain::inputs,
                                                       first);
                 return Tensors{in[0]};
               },
               expect,
               {{stored, normal ? 2 * stored : 0}}});
        }
      }
    }
  }
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_squared_error(rows);
  add_add_losses(rows);
  add_updates(rows);
  add_fills(rows);
  add_norms(rows);
  add_ropes(rows);
  add_activations(rows);
  add_cross_entropies(rows);
  add_embedding_grads(rows);
  add_sums(rows);
  add_modulations(rows);
  return rows;
}

void expect_near(const Tensors& got, const Tensors& expected, const Row& row,
                 double Tolerance::*side, int64_t shift) {
  ASSERT_EQ(got.size(), expected.size()) << row.name;
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor a = got[i].cpu().to(at::kDouble), b = expected[i].cpu().to(at::kDouble);
    ASSERT_EQ(a.numel(), b.numel()) << row.name;
    if (a.numel() == 0) continue;
    ASSERT_TRUE(at::isfinite(b).all().item<bool>()) << row.name << ": the table holds finite cases";
    const double worst =
        ((a.view(-1) - b.view(-1)).abs() / (1 + b.view(-1).abs())).max().item<double>();
    EXPECT_LE(worst, row.tolerances[i].*side)
        << row.name << " shifted by " << shift << ", output " << i;
  }
}

TEST(Operations, TheCpuReferenceGivesWhatPlainExpressionsInFp64Give) {
  int rows = 0;
  for (const Row& row : table()) {
    Tensors exact;
    for (const Tensor& input : row.inputs) exact.push_back(input.to(at::kDouble));
    const Tensors expected = row.expect(exact);
    for (const int64_t shift : {0, 1, 3}) {
      expect_near(row.run(place(row.inputs, cpu_device(), shift)), expected, row,
                  &Tolerance::reference, shift);
      ++rows;
    }
  }
  EXPECT_GT(rows, 2000);
}

// Restores the number of threads, whatever a test does.
struct Threads {
  explicit Threads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  int before;
};

void expect_equal_bits(const Tensors& first, const Tensors& second, const Row& row) {
  ASSERT_EQ(first.size(), second.size()) << row.name;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(at::equal(first[i], second[i])) << row.name << ", output " << i;
  }
}

// LibTorch's loop is a serial one in what is compiled without OpenMP.
TEST(Operations, WorkIsDividedAmongThreads) {
#ifndef _OPENMP
  GTEST_SKIP() << "compiled without OpenMP";
#endif
  const Threads scope(2);
  std::atomic<int> parts = 0, of_others = 0;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    ++parts;
    if (at::get_thread_num() != 0) ++of_others;
  });
  EXPECT_EQ(parts, 2);
  EXPECT_EQ(of_others, 1);
}

TEST(Operations, TheCpuReferenceGivesTheSameBitsWhateverTheNumberOfThreads) {
  for (const Row& row : table()) {
    auto with = [&row](int threads) {
      const Threads scope(threads);
      return row.run(place(row.inputs, cpu_device(), 0));
    };
    const Tensors alone = with(1);
    expect_equal_bits(alone, with(2), row);
    expect_equal_bits(alone, with(3), row);
  }
}

TEST(GpuOperations, TheCudaKernelsGiveWhatTheCpuReferenceGives) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  for (const Row& row : table()) {
    for (const int64_t shift : {0, 1, 3}) {
      const Tensors expected = row.run(place(row.inputs, cpu_device(), shift));
      expect_near(row.run(place(row.inputs, gpu, shift)), expected, row, &Tolerance::gpu, shift);
    }
  }
}

TEST(GpuOperations, TheCudaKernelsGiveTheSameBitsTwice) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  for (const Row& row : table()) {
    for (const int64_t shift : {0, 1}) {
      const Tensors first = row.run(place(row.inputs, gpu, shift));
      expect_equal_bits(first, row.run(place(row.inputs, gpu, shift)), row);
    }
  }
}

// What decays at a small rate is about a unit in the last place of a parameter, and lost or doubled
// where it is rounded; the rest of the update is random, so that all parameters together must decay
// by what is requested.
void weight_decays_as_requested(Device device, int64_t numel) {
  constexpr double kUnit = 0x1p-23;  // of numbers from 1 to 2
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    OptimizerOptions options;
    options.kind = kind;
    options.weight_decay = 0.01;
    const UpdateKnobs knobs = knobs_for_step(options, /*learning_rate=*/1e-5, /*step=*/3, 1);
    const Tensor before = at::empty({numel}, at::kFloat);
    fill_uniform(before, 0.5, 3, RandomDomain::parameters, 0);
    before.add_(1.5);
    Tensors in = {before, random({numel}, at::kFloat)}, exact;
    if (const int states = optimizer_states(kind))
      in.push_back(random({states * numel}, at::kFloat).abs());
    for (const Tensor& tensor : in) exact.push_back(tensor.to(at::kDouble));
    const Tensors placed = place(in, device, 0);
    update_shard(placed[0], placed[1], placed.size() > 2 ? placed[2] : Tensor(),
                 knobs_on(device, knobs), update_rule(options, 11), 0);
    const double off = (placed[0].cpu().to(at::kDouble) - torch_update(options, knobs, exact)[0])
                           .sum()
                           .item<double>(),
                 decayed =
                     knobs.learning_rate * options.weight_decay * exact[0].sum().item<double>();
    const double tolerance = 6 * kUnit / std::sqrt(12.0) * std::sqrt(static_cast<double>(numel));
    ASSERT_LT(tolerance, decayed / 100);
    EXPECT_NEAR(off, 0, tolerance) << name_of(kind) << ", of " << decayed;
  }
}

TEST(Operations, WeightDecaysAsRequestedAtASmallRate) {
  weight_decays_as_requested(cpu_device(), 40'003);
}

TEST(GpuOperations, WeightDecaysAsRequestedAtASmallRate) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (const int64_t numel : {40'000, 40'003}) weight_decays_as_requested(gpu_device(0), numel);
}

TEST(Operations, ParametersCannotBeStoredInFp16) {
  const Tensor param = at::full({4}, 1, at::kHalf), knobs = at::full({5}, 1, at::kDouble);
  EXPECT_THROW(update_shard(param, param.clone(), {}, knobs, {}, 0), std::logic_error);
}

}  // namespace
}  // namespace veil
