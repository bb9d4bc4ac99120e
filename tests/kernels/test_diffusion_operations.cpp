// The operations of diffusion transformers. Gradients are held against autograd in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sin.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "kernels/modulation.h"
#include "kernels/tensor_arguments.h"
#include "kernels/test_operations.h"
#include "kernels/timestep_features.h"

namespace veil {
namespace {

constexpr double kNormEpsilon = 1e-6;
constexpr int64_t kPieces = 3;  // columns of the modulation's matrix: shift, scale, gate

struct Shape {
  int64_t batch, rows, width;
};
// One warp and several, one to four packs a thread, elements one by one, one strip and several.
const Shape kShapes[] = {{1, 1, 2},    {2, 3, 7},    {3, 9, 64},    {2, 21, 128},
                         {2, 700, 24}, {1, 5, 1031}, {2, 32, 1024}, {2, 3, 4096}};

Tensor piece(const Tensor& all, int64_t i) {
  const int64_t width = all.size(1) / kPieces;
  return all.narrow(1, i * width, width);
}
Tensor beside(const Tensor& all, int64_t i) {
  return piece(all, i).unsqueeze(1);
}
Tensor normalised(const Tensor& x) {
  const Tensor middle = x - x.mean(-1, true);
  return middle * at::rsqrt(middle.pow(2).mean(-1, true) + kNormEpsilon);
}

void add_modulated_norm(std::vector<Row>& table, DType dtype, const Shape& s, bool gated) {
  const std::vector<int64_t> sizes = {s.batch, s.rows, s.width};
  auto run = [=](const Tensors& in) {
    const Tensor out = at::full_like(in[0], 77), sum = at::full_like(in[0], 77);
    const Tensor mean = real_like(in[0], {s.batch * s.rows}),
                 rstd = real_like(in[0], {s.batch * s.rows});
    modulated_norm(in[0], gated ? in[1] : Tensor(), gated ? piece(in[2], 2) : Tensor(),
                   piece(in[2], 1), piece(in[2], 0), kNormEpsilon, gated ? sum : Tensor(), out,
                   mean, rstd);
    return gated ? Tensors{out, mean, rstd, sum} : Tensors{out, mean, rstd};
  };
  auto expect = [=](const Tensors& in) {
    const Tensor x = gated ? (in[0] + beside(in[2], 2) * in[1]).to(dtype).to(at::kDouble) : in[0];
    const Tensor middle = x - x.mean(-1, true);
    Tensors all = {normalised(x) * (1 + beside(in[2], 1)) + beside(in[2], 0), x.mean(-1),
                   at::rsqrt(middle.pow(2).mean(-1) + kNormEpsilon)};
    if (gated) all.push_back(x);
    return all;
  };
  // A sum that lies near the middle between two numbers may round to either: then the whole row
  // moves.
  Tolerance moved = stored(dtype);
  if (gated) moved = {2 * moved.reference, 2 * moved.gpu};
  const Tolerance statistics = gated && dtype != at::kDouble
                                   ? Tolerance{stored(dtype).reference, stored(dtype).gpu}
                                   : summed(dtype);
  table.push_back(
      {fmt::format("modulated_norm {} [{}, {}, {}] {}", dtype_name(dtype), s.batch, s.rows, s.width,
                   gated ? "of a gated sum" : "alone"),
       {random(sizes, dtype), random(sizes, dtype), random({s.batch, kPieces * s.width}, dtype)},
       run,
       expect,
       {moved, statistics, statistics, {2 * stored(dtype).reference, stored(dtype).gpu}}});
}

void add_modulated_norm_backward(std::vector<Row>& table, DType dtype, const Shape& s,
                                 bool with_residual, bool in_place) {
  const std::vector<int64_t> sizes = {s.batch, s.rows, s.width};
  auto run = [=](const Tensors& in) {
    const Tensor& x = in[1];
    const Tensor mean = real_like(x, {s.batch * s.rows}), rstd = real_like(x, {s.batch * s.rows}),
                 grads = real_like(x, {s.batch, kPieces * s.width});
    modulated_norm(x, {}, {}, piece(in[2], 1), piece(in[2], 0), kNormEpsilon, {}, at::empty_like(x),
                   mean, rstd);
    const Tensor dx = in_place ? in[0] : at::full_like(x, 77);
    modulated_norm_backward(in[0], x, piece(in[2], 1), mean, rstd, with_residual ? in[3] : Tensor(),
                            dx, piece(grads, 1), piece(grads, 0));
    return Tensors{dx, grads};
  };
  auto expect = [=](const Tensors& in) {
    const Tensor x = leaf(in[1]), all = leaf(in[2]);
    const Tensor out = normalised(x) * (1 + beside(all, 1)) + beside(all, 0);
    const Tensors grads = torch::autograd::grad({(out * in[0]).sum()}, {x, all});
    const Tensor untouched = at::full_like(piece(grads[1], 2), 77);
    return Tensors{with_residual ? grads[0] + in[3] : grads[0],
                   at::cat({piece(grads[1], 0), piece(grads[1], 1), untouched}, 1)};
  };
  Tolerance input_grad = stored(dtype);
  // Two columns: what rounding leaves of g - mean(g) - y mean(g y) is multiplied by up to 1 /
  // sqrt(epsilon).
  if (s.width == 2)
    input_grad = {input_grad.reference / std::sqrt(kNormEpsilon),
                  input_grad.gpu / std::sqrt(kNormEpsilon)};
  Tolerance sums = summed(dtype);
  if (s.rows > 100) sums = {10 * sums.reference, 10 * sums.gpu};
  table.push_back({fmt::format("modulated_norm_backward {} [{}, {}, {}]{}{}", dtype_name(dtype),
                               s.batch, s.rows, s.width, with_residual ? " with residual" : "",
                               in_place ? " in place" : ""),
                   {random(sizes, dtype), random(sizes, dtype),
                    random({s.batch, kPieces * s.width}, dtype), random(sizes, dtype)},
                   run,
                   expect,
                   {input_grad, sums}});
}

void add_gated_adds(std::vector<Row>& table, DType dtype, const Shape& s) {
  const std::vector<int64_t> sizes = {s.batch, s.rows, s.width};
  const std::string name =
      fmt::format("{} [{}, {}, {}]", dtype_name(dtype), s.batch, s.rows, s.width);
  const Tensors inputs = {random(sizes, dtype), random(sizes, dtype),
                          random({s.batch, kPieces * s.width}, dtype)};
  table.push_back({"gated_add " + name,
                   inputs,
                   [=](const Tensors& in) {
                     const Tensor out = at::full_like(in[0], 77);
                     gated_add(in[0], in[1], piece(in[2], 2), out);
                     return Tensors{out};
                   },
                   [=](const Tensors& in) { return Tensors{in[0] + beside(in[2], 2) * in[1]}; },
                   {stored(dtype)}});
  for (const bool in_place : {false, true}) {
    Tolerance sums = summed(dtype);
    if (s.rows > 100) sums = {10 * sums.reference, 10 * sums.gpu};
    table.push_back(
        {"gated_add_backward " + name + (in_place ? " in place" : ""),
         inputs,
         [=](const Tensors& in) {
           const Tensor d_add = in_place ? in[0] : at::full_like(in[0], 77);
           const Tensor grads = real_like(in[0], {s.batch, kPieces * s.width}),
                        sum = real_like(in[0], {s.batch, s.width});
           gated_add_backward(in[0], in[1], piece(in[2], 2), d_add, piece(grads, 2), sum);
           return Tensors{d_add, piece(grads, 2).clone(), sum};
         },
         [=](const Tensors& in) {
           const Tensor add = leaf(in[1]), all = leaf(in[2]);
           const Tensors grads =
               torch::autograd::grad({(beside(all, 2) * add * in[0]).sum()}, {add, all});
           return Tensors{grads[0], piece(grads[1], 2).contiguous(), grads[0].sum(1)};
         },
         {stored(dtype), sums, sums}});
  }
}

void add_timestep_features(std::vector<Row>& table, DType dtype, int64_t batch, int64_t width) {
  constexpr int64_t kLabels = 11;
  table.push_back(
      {fmt::format("timestep_features {} [{}, {}]", dtype_name(dtype), batch, width),
       {at::randint(0, 1000 * kLabels, {batch}, at::kLong)},
       [=](const Tensors& in) {
         const Tensor out = at::full({batch, width}, 77, in[0].options().dtype(dtype)),
                      ids = at::full_like(in[0], 77);
         timestep_features(in[0], kLabels, out, ids);
         return Tensors{out, ids};
       },
       [=](const Tensors& in) {
         const Tensor code = in[0].to(at::kLong), label = code.remainder(kLabels);
         const Tensor timestep = (code - label).to(at::kDouble) / kLabels;
         const Tensor k = at::arange(width / 2, at::kDouble) / (static_cast<double>(width) / 2);
         const Tensor angle = timestep.view({batch, 1}) * at::exp(k * -std::log(10000.0));
         return Tensors{at::cat({at::cos(angle), at::sin(angle)}, 1), label};
       },
       {{std::max(1e-12, rounding_of(dtype)), stored(dtype).gpu}, {0, 0}}});
}

}  // namespace

void add_modulations(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : kShapes) {
      for (const bool with : {false, true}) {
        add_modulated_norm(table, dtype, shape, with);
        add_modulated_norm_backward(table, dtype, shape, with, /*in_place=*/!with);
      }
      add_gated_adds(table, dtype, shape);
    }
    for (const auto& [batch, width] :
         {std::pair<int64_t, int64_t>{0, 8}, {1, 2}, {5, 256}, {3, 18}})
      add_timestep_features(table, dtype, batch, width);
  }
}

}  // namespace veil
