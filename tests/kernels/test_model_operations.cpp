// The operations of language models. Gradients are held against autograd in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding_grad.h"
#include "kernels/rope.h"
#include "kernels/squared_norm.h"
#include "kernels/tensor_arguments.h"
#include "kernels/test_operations.h"
#include "kernels/token_sum.h"

namespace veil {

namespace {

RopeFrequencies frequencies_of(int64_t head_dim, double scale) {
  RopeFrequencies frequencies;
  frequencies.count = static_cast<int>(head_dim / 2);
  for (int j = 0; j < frequencies.count; ++j) {
    frequencies.value[j] = scale * std::pow(10000.0, -2.0 * j / static_cast<double>(head_dim));
  }
  return frequencies;
}

// x [batch, tokens, heads, head_dim], as Hugging Face writes it.
Tensor turned_by(const Tensor& x, const RopeFrequencies& frequencies) {
  if (frequencies.count == 0) return x;
  const int64_t tokens = x.size(1), half = frequencies.count,
                behind = x.size(3) - 2 * half;  // stays as it is
  const Tensor value =
      at::tensor(c10::ArrayRef<double>(frequencies.value, static_cast<size_t>(half)), at::kDouble);
  const Tensor angle =
      at::arange(tokens, at::kDouble).view({tokens, 1, 1}) * at::cat({value, value});
  const Tensor pairs = x.narrow(3, 0, 2 * half);
  const Tensor rotated = at::cat({-pairs.narrow(3, half, half), pairs.narrow(3, 0, half)}, 3);
  return at::cat({frequencies.scale * (pairs * at::cos(angle) + rotated * at::sin(angle)),
                  x.narrow(3, 2 * half, behind)},
                 3);
}

struct RopeShape {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  double scale;        // of the frequencies: large ones stand for far positions; 0 for none at all
  int64_t behind = 0;  // elements of a head that do not turn; what turns is scaled then
};
const RopeShape kRopeShapes[] = {
    {1, 1, 1, 1, 2, 1},       {2, 5, 3, 1, 6, 1},         {1, 7, 2, 2, 16, 1},
    {2, 33, 5, 2, 64, 1},     {1, 9, 9, 3, 128, 98765.4}, {2, 3, 2, 1, 256, 1},
    {1, 130, 4, 4, 32, 10},   {2, 5, 3, 2, 32, 0},        {2, 5, 3, 2, 32, 1, 16},
    {1, 7, 9, 3, 128, 1, 32}, {2, 3, 3, 1, 10, 1, 4}};

void add_rope(std::vector<Row>& table, DType dtype, const RopeShape& s) {
  RopeFrequencies frequencies =
      s.scale == 0 ? RopeFrequencies{} : frequencies_of(s.head_dim - s.behind, s.scale);
  if (s.behind > 0) frequencies.scale = 1.25;
  const int64_t heads = s.heads + 2 * s.kv_heads, turning = s.heads + s.kv_heads;
  const std::string name =
      fmt::format("{} [{}, {}, {} + {}, {}] times {} but {}", dtype_name(dtype), s.batch, s.tokens,
                  s.heads, s.kv_heads, s.head_dim, s.scale, s.behind);
  auto turn = [=](const Tensor& qkv) {
    return at::cat(
        {turned_by(qkv.narrow(2, 0, turning), frequencies), qkv.narrow(2, turning, s.kv_heads)}, 2);
  };
  table.push_back({"rope " + name,
                   {random({s.batch, s.tokens, heads, s.head_dim}, dtype)},
                   [=](const Tensors& in) {
                     rope(in[0], turning, frequencies);
                     return Tensors{in[0]};
                   },
                   [=](const Tensors& in) { return Tensors{turn(in[0])}; },
                   {stored(dtype)}});
  for (const bool token_major : {false, true}) {
    auto source = [=](int64_t n) {
      return token_major ? random({s.batch, s.tokens, n, s.head_dim}, dtype)
                         : random({s.batch, n, s.tokens, s.head_dim}, dtype);
    };
    auto heads_first = [=](const Tensor& tensor) {
      return token_major ? tensor.transpose(1, 2) : tensor;
    };
    table.push_back(
        {"rope_backward " + name + (token_major ? " token-major" : ""),
         {source(s.heads), source(s.kv_heads), source(s.kv_heads)},
         [=](const Tensors& in) {
           const Tensor dqkv =
               at::full({s.batch, s.tokens, heads, s.head_dim}, 77, in[0].options());
           rope_backward(heads_first(in[0]), heads_first(in[1]), heads_first(in[2]), dqkv,
                         frequencies);
           return Tensors{dqkv};
         },
         [=](const Tensors& in) {
           const Tensor qkv = leaf(at::zeros({s.batch, s.tokens, heads, s.head_dim}, at::kDouble));
           const Tensor upper =
               at::cat({heads_first(in[0]), heads_first(in[1]), heads_first(in[2])}, 1)
                   .transpose(1, 2);
           return torch::autograd::grad({(turn(qkv) * upper).sum()}, {qkv});
         },
         {stored(dtype)}});
  }
}

void add_gated(std::vector<Row>& table, DType dtype, int64_t rows, int64_t width, bool silu) {
  const std::string name = fmt::format("{} [{}, {}]", dtype_name(dtype), rows, width),
                    operation = silu ? "swiglu" : "geglu";
  const auto forward = silu ? swiglu : geglu;
  const auto backward = silu ? swiglu_backward : geglu_backward;
  auto gated = [=](const Tensor& x) {
    const Tensor gate = x.narrow(1, 0, width);
    return (silu ? at::silu(gate) : at::gelu(gate, "tanh")) * x.narrow(1, width, width);
  };
  const Tensor gate_up = random({rows, 2 * width}, dtype) * 4, grad = random({rows, width}, dtype);
  table.push_back({operation + " " + name,
                   {gate_up},
                   [=](const Tensors& in) {
                     const Tensor out = at::full({rows, width}, 77, in[0].options());
                     forward(in[0], out);
                     return Tensors{out};
                   },
                   [=](const Tensors& in) { return Tensors{gated(in[0])}; },
                   {stored(dtype)}});
  for (const bool in_place : {false, true}) {
    for (const bool again : {false, true}) {
      table.push_back({operation + "_backward " + name + (in_place ? " in place" : "") +
                           (again ? " and again" : ""),
                       {gate_up, grad},
                       [=](const Tensors& in) {
                         const Tensor dx = in_place ? in[0] : at::full_like(in[0], 77);
                         const Tensor out = in_place ? in[1] : at::full_like(in[1], 77);
                         backward(in[0], in[1], dx, again ? out : Tensor());
                         return again ? Tensors{dx, out} : Tensors{dx};
                       },
                       [=](const Tensors& in) {
                         const Tensor x = leaf(in[0]), out = gated(x);
                         Tensors all = torch::autograd::grad({(out * in[1]).sum()}, {x});
                         if (again) all.push_back(out.detach());
                         return all;
                       },
                       {stored(dtype), stored(dtype)}});
    }
  }
}

// Where dx and the activation go: dx on x puts the activation on grad, and the other way round.
std::pair<Tensor, Tensor> gelu_targets(const Tensors& in, Overlap overlap) {
  if (overlap == Overlap::none) return {at::full_like(in[0], 77), at::full_like(in[0], 77)};
  return overlap == Overlap::first ? std::pair{in[0], in[1]} : std::pair{in[1], in[0]};
}

void add_gelu(std::vector<Row>& table, DType dtype, int64_t numel, const char* by) {
  const std::string name = fmt::format("{} [{}] by {}", dtype_name(dtype), numel, by);
  const bool exact = std::string(by) == "none";  // as PyTorch calls the exact one
  const auto forward = exact ? gelu_erf : gelu;
  const auto backward = exact ? gelu_erf_backward : gelu_backward;
  const Tensor x = random({numel}, dtype) * 3, grad = random({numel}, dtype);
  table.push_back({"gelu " + name,
                   {x},
                   [=](const Tensors& in) {
                     const Tensor out = at::full_like(in[0], 77);
                     forward(in[0], out);
                     return Tensors{out};
                   },
                   [=](const Tensors& in) { return Tensors{at::gelu(in[0], by)}; },
                   {stored(dtype)}});
  for (const Overlap overlap : {Overlap::none, Overlap::first, Overlap::second}) {
    for (const bool again : {false, true}) {
      table.push_back(
          {"gelu_backward " + name + " " + name_of(overlap) + (again ? " and again" : ""),
           {x, grad},
           [=](const Tensors& in) {
             const auto [dx, out] = gelu_targets(in, overlap);
             backward(in[0], in[1], dx, again ? out : Tensor());
             return again ? Tensors{dx, out} : Tensors{dx};
           },
           [=](const Tensors& in) {
             const Tensor at_x = leaf(in[0]), out = at::gelu(at_x, by);
             Tensors all = torch::autograd::grad({(out * in[1]).sum()}, {at_x});
             if (again) all.push_back(out.detach());
             return all;
           },
           {stored(dtype), stored(dtype)}});
    }
  }
}

// The last output is 0: what is summed on the way is token_sum of what was stored, to the bit.
Tensor off_sums(const Tensor& sums, const Tensor& stored) {
  const Tensor expected = at::full_like(sums, 77);
  token_sum(stored, expected);
  return sums - expected;
}

struct TokenShape {
  int64_t batch, tokens, width;
};

void add_summed(std::vector<Row>& table, DType dtype, const TokenShape& s) {
  const std::string name =
      fmt::format("{} [{}, {}, {}]", dtype_name(dtype), s.batch, s.tokens, s.width);
  const Tensor x = random({s.batch, s.tokens, s.width}, dtype);
  for (const Overlap overlap : {Overlap::none, Overlap::first, Overlap::second}) {
    for (const bool again : {false, true}) {
      table.push_back(
          {"gelu_backward_summed " + name + " " + name_of(overlap) + (again ? " and again" : ""),
           {x, random(x.sizes(), dtype)},
           [=](const Tensors& in) {
             const auto [dx, out] = gelu_targets(in, overlap);
             const Tensor sums = real_like(in[0], {s.batch, s.width});
             gelu_backward_summed(in[0], in[1], dx, again ? out : Tensor(), sums);
             const Tensor off = off_sums(sums, dx);
             return again ? Tensors{dx, off, out} : Tensors{dx, off};
           },
           [=](const Tensors& in) {
             const Tensor at_x = leaf(in[0]), out = at::gelu(at_x, "tanh");
             Tensors all = torch::autograd::grad({(out * in[1]).sum()}, {at_x});
             all.push_back(at::zeros({s.batch, s.width}, at::kDouble));
             if (again) all.push_back(out.detach());
             return all;
           },
           {stored(dtype), {0, 0}, stored(dtype)}});
    }
  }
  const int64_t head_dim = s.width % 2 ? 2 * s.width : s.width, kv_heads = 2, heads = 3;
  for (const bool token_major : {false, true}) {
    auto source = [=](int64_t n) {
      return token_major ? random({s.batch, s.tokens, n, head_dim}, dtype)
                         : random({s.batch, n, s.tokens, head_dim}, dtype);
    };
    auto heads_first = [=](const Tensor& tensor) {
      return token_major ? tensor.transpose(1, 2) : tensor;
    };
    table.push_back(
        {"pack_heads " + name + (token_major ? " token-major" : ""),
         {source(heads), source(kv_heads), source(kv_heads)},
         [=](const Tensors& in) {
           const Tensor dqkv =
               at::full({s.batch, s.tokens, heads + 2 * kv_heads, head_dim}, 77, in[0].options());
           const Tensor sums = real_like(in[0], {s.batch, (heads + 2 * kv_heads) * head_dim});
           pack_heads(heads_first(in[0]), heads_first(in[1]), heads_first(in[2]), dqkv, sums);
           return Tensors{dqkv, off_sums(sums, dqkv.flatten(2))};
         },
         [=](const Tensors& in) {
           const Tensor all =
               at::cat({heads_first(in[0]), heads_first(in[1]), heads_first(in[2])}, 1);
           return Tensors{all.transpose(1, 2).contiguous(),
                          at::zeros({s.batch, (heads + 2 * kv_heads) * head_dim}, at::kDouble)};
         },
         {{0, 0}, {0, 0}}});
  }
}

struct EntropyShape {
  int64_t batch, tokens, vocabulary, block;  // block: columns at a time
};
const EntropyShape kEntropyShapes[] = {{1, 1, 1, 1},       {2, 3, 7, 7},       {3, 5, 33, 8},
                                       {2, 4, 1031, 1031}, {2, 5, 5000, 5000}, {2, 9, 20480, 8192}};

// Sample 1 has no valid token; ignored rows hold what is not finite.
void add_cross_entropy(std::vector<Row>& table, DType dtype, const EntropyShape& s) {
  const int64_t rows = s.batch * s.tokens;
  const Tensor targets = at::randint(0, s.vocabulary, {rows}, at::kLong);
  const Tensor logits = (random({rows, s.vocabulary}, at::kDouble) * 3).to(dtype);
  for (int64_t i = 0; i < rows; ++i) {
    if (i / s.tokens != 1 && i % 4 != 1) continue;
    targets[i].fill_(kIgnoreTarget);
    logits[i].fill_(i % 2 ? std::numeric_limits<double>::infinity() : std::nan(""));
  }
  // A gradient's entries are about weight / vocabulary; the table's tolerance wants them near 1.
  const double scale = static_cast<double>(s.tokens * s.vocabulary);
  auto run = [=](const Tensors& in) {
    const Tensor weights = real_like(in[0], {s.batch}), state = real_like(in[0], {rows, 3});
    const Tensor losses = at::full({s.batch}, 77, in[0].options().dtype(at::kDouble));
    token_weights(in[1], weights);
    Tensors blocks;
    for (int64_t first = 0; first < s.vocabulary; first += s.block) {
      const Tensor block =
          in[0].narrow(1, first, std::min(s.block, s.vocabulary - first)).contiguous();
      cross_entropy_scan(block, first, in[1], state);
      blocks.push_back(block);
    }
    cross_entropy_losses(state, in[1], weights, losses);
    for (size_t b = 0; b < blocks.size(); ++b) {
      cross_entropy_grad(blocks[b], static_cast<int64_t>(b) * s.block, in[1], state, weights);
    }
    return Tensors{weights, losses, at::cat(blocks, 1).to(at::kDouble) * scale};
  };
  auto expect = [=](const Tensors& in) {
    const Tensor wanted = in[1].to(at::kLong), valid = wanted != kIgnoreTarget;
    const Tensor x = leaf(in[0].masked_fill(valid.logical_not().unsqueeze(1), 0));
    const Tensor picked =
        -at::log_softmax(x, 1).gather(1, wanted.clamp_min(0).unsqueeze(1)).squeeze(1) *
        valid.to(at::kDouble);
    const Tensor counts = valid.view({s.batch, s.tokens}).sum(1).to(at::kDouble);
    const Tensor weights = (1 / counts).masked_fill(counts == 0, 0);
    const Tensor losses = picked.view({s.batch, s.tokens}).sum(1) * weights;
    const Tensors grads = torch::autograd::grad({losses.sum()}, {x});
    return Tensors{weights, losses.detach(), grads[0] * scale};
  };
  const double loss = dtype == at::kDouble ? 1e-12 : 5e-6;
  // The exponential's rounding is relative to the entry. In fp16 most entries are subnormal:
  // multiples of 2^-24.
  Tolerance grad = stored(dtype);
  if (dtype == at::kDouble) grad = {1e-10, 1e-10};
  if (dtype == at::kFloat) grad = {2e-5, 2e-5};
  if (dtype == at::kHalf)
    grad = {grad.reference + std::ldexp(scale, -25), grad.gpu + std::ldexp(scale, -24)};
  table.push_back({fmt::format("cross_entropy {} [{}, {}, {}] by {}", dtype_name(dtype), s.batch,
                               s.tokens, s.vocabulary, s.block),
                   {logits, targets},
                   run,
                   expect,
                   {{1e-7, 0}, {loss, loss}, grad}});
}

void add_embedding_grad(std::vector<Row>& table, DType dtype, DType out_type, int64_t count,
                        int64_t vocabulary, int64_t width, bool accumulate) {
  table.push_back(
      {fmt::format("embedding_grad {} into {} [{}, {}] of {}{}", dtype_name(dtype),
                   dtype_name(out_type), count, width, vocabulary,
                   accumulate ? " accumulated" : ""),
       {at::randint(0, vocabulary, {count}, at::kLong), random({count, width}, dtype),
        random({vocabulary, width}, out_type)},
       [=](const Tensors& in) {
         embedding_grad(in[0], in[1], in[2], accumulate);
         return Tensors{in[2]};
       },
       [=](const Tensors& in) {
         const Tensor start = accumulate ? in[2] : at::zeros({vocabulary, width}, at::kDouble);
         return Tensors{start.index_add(0, in[0].to(at::kLong), in[1])};
       },
       {{dtype == at::kDouble                       ? 1e-13
         : out_type == dtype && dtype != at::kFloat ? rounding_of(dtype)
                                                    : 1e-5,
         0}}});
}

// Tables of their own, with something between them that nobody may write to.
void add_embedding_tables(std::vector<Row>& table, DType dtype, int64_t tables, int64_t count,
                          int64_t vocabulary, int64_t width, int64_t between, bool accumulate) {
  const int64_t size = vocabulary * width;
  table.push_back(
      {fmt::format("embedding_grads {} {} [{}, {}] of {}, {} apart{}", dtype_name(dtype), tables,
                   count, width, vocabulary, between, accumulate ? ", accumulated" : ""),
       {at::randint(0, vocabulary, {tables, count}, at::kLong),
        random({tables, count, width}, dtype), random({tables, size + between}, dtype)},
       [=](const Tensors& in) {
         embedding_grads(in[0], in[1], in[2].narrow(1, 0, size), accumulate);
         return Tensors{in[2]};
       },
       [=](const Tensors& in) {
         const Tensor out = in[2].clone();
         for (int64_t i = 0; i < tables; ++i) {
           const Tensor own = out[i].narrow(0, 0, size).view({vocabulary, width});
           if (!accumulate) own.zero_();
           own.index_add_(0, in[0][i].to(at::kLong), in[1][i]);
         }
         return Tensors{out};
       },
       {{dtype == at::kDouble  ? 1e-13
         : dtype == at::kFloat ? 1e-5
                               : rounding_of(dtype),
         0}}});
}

}  // namespace

void add_ropes(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const RopeShape& shape : kRopeShapes) add_rope(table, dtype, shape);
  }
}

void add_activations(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 7}, {5, 64}, {2, 1031}, {40, 2048}})
      for (const bool silu : {true, false}) add_gated(table, dtype, rows, width, silu);
    for (const int64_t numel : {0, 1, 7, 1031, 70'000}) {
      for (const char* by : {"tanh", "none"}) add_gelu(table, dtype, numel, by);
    }
  }
}

void add_cross_entropies(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const EntropyShape& shape : kEntropyShapes) add_cross_entropy(table, dtype, shape);
  }
}

void add_embedding_grads(std::vector<Row>& table) {
  struct Shape {
    int64_t count, vocabulary, width;
  };
  for (const DType dtype : kTypes) {
    for (const Shape& s :
         {Shape{0, 3, 5}, {1, 1, 1}, {9, 4, 7}, {64, 50, 40}, {300, 7, 1040}, {33, 1000, 8}}) {
      for (const bool accumulate : {false, true}) {
        add_embedding_grad(table, dtype, real_of(dtype), s.count, s.vocabulary, s.width,
                           accumulate);
        if (real_of(dtype) != dtype)
          add_embedding_grad(table, dtype, dtype, s.count, s.vocabulary, s.width, accumulate);
      }
    }
    for (const bool accumulate : {false, true}) {
      add_embedding_tables(table, dtype, 3, 64, 50, 40, 8, accumulate);
      add_embedding_tables(table, dtype, 2, 9, 4, 7, 3, accumulate);
      add_embedding_tables(table, dtype, 2, 9, 4, 16, 3, accumulate);
      add_embedding_tables(table, dtype, 2, 0, 3, 8, 8, accumulate);
      add_embedding_tables(table, dtype, 1, 5, 3, 16, 0, accumulate);
    }
  }
}

void add_sums(std::vector<Row>& table) {
  struct Shape {
    int64_t batch, tokens, width, before, behind;  // columns that do not belong to it
  };
  for (const DType dtype : kTypes) {
    for (const Shape& s : {Shape{1, 1, 1, 0, 0},
                           {2, 3, 7, 0, 0},
                           {3, 70, 64, 0, 0},
                           {2, 40, 64, 8, 24},
                           {2, 9, 33, 5, 1},
                           {4, 5, 2048, 0, 0},
                           {2, 64, 1024, 0, 0}}) {
      table.push_back(
          {fmt::format("token_sum {} [{}, {}, {} + {} + {}]", dtype_name(dtype), s.batch, s.tokens,
                       s.before, s.width, s.behind),
           {random({s.batch, s.tokens, s.before + s.width + s.behind}, dtype)},
           [=](const Tensors& in) {
             const Tensor out = real_like(in[0], {s.batch, s.width});
             token_sum(in[0].narrow(2, s.before, s.width), out);
             return Tensors{out};
           },
           [=](const Tensors& in) { return Tensors{in[0].narrow(2, s.before, s.width).sum(1)}; },
           {summed(dtype)}});
    }
    for (const TokenShape& s :
         {TokenShape{1, 1, 1}, {2, 3, 7}, {3, 70, 64}, {2, 9, 33}, {4, 5, 1024}, {1, 1030, 16}})
      add_summed(table, dtype, s);
    for (const int64_t numel : {0, 1, 7, 1031, 100'003}) {
      table.push_back({fmt::format("add_squared_norm {} [{}]", dtype_name(dtype), numel),
                       {random({numel}, dtype), at::full({1}, 3.25, at::kDouble)},
                       [](const Tensors& in) {
                         add_squared_norm(in[0], in[1]);
                         return Tensors{in[1]};
                       },
                       [](const Tensors& in) { return Tensors{in[0].pow(2).sum() + in[1]}; },
                       {{1e-12, 1e-12}}});
    }
  }
}

}  // namespace veil
