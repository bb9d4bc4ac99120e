#include "nn/projection.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "base/error.h"
#include "kernels/token_sum.h"
#include "tensor/category.h"

namespace veil {

namespace {

Tensor rows_of(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

std::vector<int64_t> with_last(const Tensor& x, int64_t last) {
  std::vector<int64_t> dims = x.sizes().vec();
  dims.back() = last;
  return dims;
}

Tensor transposed(const Params& params, const Projection& p) {  // [in, out]
  const Tensor weight = params.joined(p.weight, p.joined);
  return p.in_out ? weight : weight.t();
}

}  // namespace

Tensor Projection::forward(const Params& params, const Tensor& x) const {
  const Tensor turned = transposed(params, *this);
  const Tensor y = bias < 0 ? at::mm(rows_of(x), turned)
                            : at::addmm(params.joined(bias, joined), rows_of(x), turned);
  return y.view(with_last(x, out));
}

Tensor Projection::forward_add(const Params& params, const Tensor& x,
                               const Tensor& residual) const {
  Tensor y = at::addmm(rows_of(residual), rows_of(x), transposed(params, *this));
  if (bias >= 0) y.add_(params[bias]);
  return y.view(with_last(x, out));
}

void Projection::input_grad(const Params& params, const Tensor& g, const Tensor& result) const {
  Tensor rows = rows_of(result);
  at::mm_out(rows, rows_of(g), transposed(params, *this).t());
}

void Projection::report(GradSink& sink, const Tensor& a, const Tensor& g) const {
  if (in_out) {
    sink.linear({weight}, g, a);  // the stored rows are the inputs: dW = a^T g
  } else {
    sink.linear({weight}, a, g);
  }
  if (bias < 0) return;
  CategoryScope scope(Category::temporary);
  const Tensor per_sample = empty_tensor({g.size(0), out}, sum_dtype(g.scalar_type()), g.device());
  token_sum(g, per_sample);
  sink.direct(bias, per_sample);
}

void Projection::report(GradSink& sink, const Tensor& a, const Tensor& g,
                        const Tensor& bias_grad) const {
  VEIL_CHECK(!in_out && bias >= 0, "sums for a bias that is not there");
  sink.linear({weight}, a, g);
  sink.direct(bias, bias_grad);
}

void Projection::add_shape(BlockShape& shape, int64_t batch, int64_t tokens) const {
  for (int i = 0; i < joined; ++i) shape.params.push_back(weight + i);
  shape.reports.push_back({weight, in * out, Report::By::linear, false, batch, tokens,
                           in_out ? in : out, in_out ? out : in});
  if (bias < 0) return;
  for (int i = 0; i < joined; ++i) shape.params.push_back(bias + i);
  shape.reports.push_back({bias, out, Report::By::direct, false, batch});
}

void Projection::set_moment(BlockShape& shape, int64_t live_bytes, int64_t held_bytes,
                            int64_t sums_bytes) const {
  for (Report& report : shape.reports) {
    if (report.param != weight && report.param != bias) continue;
    const int64_t own = report.param == bias ? sums_bytes : 0;
    report.live_bytes = live_bytes + own;
    report.held_bytes = held_bytes + own;
  }
}

int64_t Projection::report_scratch_bytes(int64_t batch, int64_t tokens, DType compute,
                                         bool on_gpu) const {
  if (bias < 0) return 0;
  return batch * out * dtype_bytes(sum_dtype(compute)) +
         token_sum_scratch_bytes(batch, tokens, out, compute, on_gpu);
}

}  // namespace veil
