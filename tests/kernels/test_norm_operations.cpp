// RMSNorm and LayerNorm. Gradients are held against autograd in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/norm.h"
#include "kernels/tensor_arguments.h"
#include "kernels/test_operations.h"

namespace veil {
namespace {

Tensor rounded_to(DType dtype, const Tensor& tensor) {
  return tensor.to(dtype).to(at::kDouble);
}

struct NormShape {
  int64_t batch, rows, width;
};
// One warp and several, one to four packs a thread, elements one by one, one strip and several.
const NormShape kNormShapes[] = {{1, 1, 1},     {2, 3, 7},     {3, 9, 64},   {2, 21, 128},
                                 {1, 5, 1031},  {2, 2, 2048},  {1, 3, 4096}, {1, 2, 8200},
                                 {1, 1, 16384}, {2, 32, 1024}, {512, 7, 512}};
constexpr double kEpsilon = 1e-5;
// RMSNorm's, in some of the shapes.
double offset_of(const NormShape& shape) {
  return static_cast<double>(shape.rows % 2);
}

Tensor normalised(const Tensor& x, bool centred) {
  const Tensor middle = centred ? x - x.mean(-1, true) : x;
  return middle * at::rsqrt(middle.pow(2).mean(-1, true) + kEpsilon);
}

void add_norm(std::vector<Row>& table, DType dtype, const NormShape& shape, bool centred,
              bool with_add, Overlap overlap) {
  const auto [batch, rows, width] = shape;
  const std::vector<int64_t> sizes = {batch, rows, width};
  auto run = [=](const Tensors& in) {
    const Tensor out = at::full_like(in[0], 77), rstd = real_like(in[0], {batch * rows}),
                 mean = real_like(in[0], {batch * rows});
    const Tensor sum = overlap == Overlap::none    ? at::full_like(in[0], 77)
                       : overlap == Overlap::first ? in[0]
                                                   : in[1];
    const Tensor add = with_add ? in[1] : Tensor();
    if (centred) {
      layer_norm(in[0], add, in[2], in[3], kEpsilon, sum, out, mean, rstd);
      return with_add ? Tensors{out, rstd, mean, sum} : Tensors{out, rstd, mean};
    }
    rms_norm(in[0], add, in[2], kEpsilon, sum, out, rstd, offset_of(shape));
    return with_add ? Tensors{out, rstd, sum} : Tensors{out, rstd};
  };
  auto expect = [=](const Tensors& in) {
    const Tensor x = with_add ? rounded_to(dtype, in[0] + in[1]) : in[0];
    const Tensor out = normalised(x, centred) * (in[2] + (centred ? 0 : offset_of(shape))) +
                       (centred ? in[3] : at::zeros({width}, at::kDouble));
    const Tensor middle = centred ? x - x.mean(-1, true) : x;
    Tensors all = {out, at::rsqrt(middle.pow(2).mean(-1) + kEpsilon)};
    if (centred) all.push_back(x.mean(-1));
    if (with_add) all.push_back(x);
    return all;
  };
  std::vector<Tolerance> tolerances = {stored(dtype), summed(dtype)};
  if (centred) tolerances.push_back(summed(dtype));
  // fp32 sums of two numbers round once; the table's fp64 sum is rounded to the same.
  if (with_add) tolerances.push_back({stored(dtype).reference, 0});
  table.push_back(
      {fmt::format("{} {} [{}, {}, {}] {} {}", centred ? "layer_norm" : "rms_norm",
                   dtype_name(dtype), batch, rows, width, with_add ? "of a sum" : "alone",
                   name_of(overlap)),
       {random(sizes, dtype), random(sizes, dtype), random({width}, dtype), random({width}, dtype)},
       run,
       expect,
       tolerances});
}

void add_norm_backward(std::vector<Row>& table, DType dtype, const NormShape& shape, bool centred,
                       bool with_residual, Overlap overlap) {
  const auto [batch, rows, width] = shape;
  const std::vector<int64_t> sizes = {batch, rows, width};
  auto run = [=](const Tensors& in) {
    const Tensor x = in[1], weight = in[2], rstd = real_like(x, {batch * rows}),
                 mean = real_like(x, {batch * rows});
    const Tensor out = at::empty_like(x), weight_grad = real_like(x, {batch, width}),
                 bias_grad = real_like(x, {batch, width});
    const Tensor residual = with_residual ? in[3] : Tensor();
    const Tensor dx = overlap == Overlap::none    ? at::full_like(x, 77)
                      : overlap == Overlap::first ? in[0]
                                                  : in[3];
    if (centred) {
      layer_norm(x, {}, weight, weight, kEpsilon, {}, out, mean, rstd);
      layer_norm_backward(in[0], x, weight, mean, rstd, residual, dx, weight_grad, bias_grad);
      return Tensors{dx, weight_grad, bias_grad};
    }
    rms_norm(x, {}, weight, kEpsilon, {}, out, rstd, offset_of(shape));
    rms_norm_backward(in[0], x, weight, rstd, residual, dx, weight_grad, offset_of(shape));
    return Tensors{dx, weight_grad};
  };
  auto expect = [=](const Tensors& in) {
    const Tensor x = leaf(in[1]), weight = leaf(in[2].expand({batch, 1, width})),
                 bias = leaf(at::zeros({batch, 1, width}, at::kDouble));
    const Tensor out = normalised(x, centred) * (weight + (centred ? 0 : offset_of(shape))) + bias;
    const Tensors grads = torch::autograd::grad({(out * in[0]).sum()}, {x, weight, bias});
    const Tensor dx = with_residual ? grads[0] + in[3] : grads[0];
    return centred ? Tensors{dx, grads[1], grads[2]} : Tensors{dx, grads[1]};
  };
  // One column has no variance: what a fused multiply-add leaves of g - mean(g) is multiplied by 1
  // / sqrt(epsilon).
  Tolerance input_grad = stored(dtype);
  if (centred && width == 1) input_grad.gpu /= std::sqrt(kEpsilon);
  const Tensors inputs = {random(sizes, dtype), random(sizes, dtype), random({width}, dtype),
                          random(sizes, dtype)};
  // Without a mean to take away, one column's gradient is the difference of two terms that are nearly
  // equal: rounding is of their size, which has no bound, for x may be close to 0.
  if (!centred && width == 1) {
    const Tensor x = inputs[1].to(at::kDouble),
                 g = inputs[0].to(at::kDouble) * (inputs[2].to(at::kDouble) + offset_of(shape));
    const double terms = (g.abs() / (x.square() + kEpsilon).sqrt()).max().item<double>();
    input_grad.reference *= std::max(1.0, terms);
    input_grad.gpu *= std::max(1.0, terms);
  }
  table.push_back({fmt::format("{}_backward {} [{}, {}, {}] {} {}",
                               centred ? "layer_norm" : "rms_norm", dtype_name(dtype), batch, rows,
                               width, with_residual ? "with residual" : "alone", name_of(overlap)),
                   inputs,
                   run,
                   expect,
                   {input_grad, summed(dtype), summed(dtype)}});
}

}  // namespace

void add_norms(std::vector<Row>& table) {
  for (const DType dtype : kTypes) {
    for (const NormShape& shape : kNormShapes) {
      for (const bool centred : {false, true}) {
        for (const bool with : {false, true}) {
          add_norm(table, dtype, shape, centred, with, Overlap::none);
          add_norm_backward(table, dtype, shape, centred, with, Overlap::none);
        }
        if (shape.width > 2048) continue;
        for (const Overlap overlap : {Overlap::first, Overlap::second}) {
          add_norm(table, dtype, shape, centred, true, overlap);
          add_norm_backward(table, dtype, shape, centred, true, overlap);
        }
      }
    }
  }
}

}  // namespace veil
