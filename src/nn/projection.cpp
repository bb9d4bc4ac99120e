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

void Projection::set_trained(const std::vector<bool>& trained) {
  trains_weight = trained[static_cast<size_t>(weight)];
  trains_bias = bias >= 0 && trained[static_cast<size_t>(bias)];
}

// y = beta y + s (x A^T) B^T, part by part; x and y are rows.
void Projection::add_adapters(const Params& params, const Tensor& x, Tensor& y, int beta) const {
  if (adapters.count() == 0) return;
  CategoryScope scope(Category::temporary);
  const Tensor narrow = at::mm(x, params.joined(adapters.a, adapters.count()).t());
  for (int i = 0; i < adapters.count(); ++i) {
    const Adapters::Part& part = adapters.parts[static_cast<size_t>(i)];
    Tensor columns = y.narrow(1, part.first, part.out);
    at::addmm_out(columns, columns, narrow.narrow(1, i * adapters.rank, adapters.rank),
                  params[part.b].t(), beta, /*alpha=*/adapters.scale);
  }
}

Tensor Projection::forward(const Params& params, const Tensor& x) const {
  const Tensor turned = transposed(params, *this), rows = rows_of(x);
  if (bias < 0 && adapters.covers(out)) {
    // The adapters' part comes first: the large product reads it while it computes.
    Tensor y = empty_tensor({rows.size(0), out}, x.scalar_type(), x.device());
    add_adapters(params, rows, y, /*beta=*/0);
    at::addmm_out(y, y, rows, turned);
    return y.view(with_last(x, out));
  }
  Tensor y = bias < 0 ? at::mm(rows, turned) : at::addmm(params.joined(bias, joined), rows, turned);
  add_adapters(params, rows, y, /*beta=*/1);
  return y.view(with_last(x, out));
}

Tensor Projection::forward_add(const Params& params, const Tensor& x,
                               const Tensor& residual) const {
  const Tensor rows = rows_of(x);
  Tensor y = at::addmm(rows_of(residual), rows, transposed(params, *this));
  if (bias >= 0) y.add_(params[bias]);
  add_adapters(params, rows, y, /*beta=*/1);
  return y.view(with_last(x, out));
}

Tensor Projection::adapter_grad(const Params& params, const Tensor& g) const {
  if (adapters.count() == 0) return {};
  CategoryScope scope(Category::temporary);
  const Tensor rows = rows_of(g);
  const Tensor narrow = empty_tensor({rows.size(0), adapters.width()}, g.scalar_type(), g.device());
  for (int i = 0; i < adapters.count(); ++i) {
    const Adapters::Part& part = adapters.parts[static_cast<size_t>(i)];
    Tensor own = narrow.narrow(1, i * adapters.rank, adapters.rank);
    at::addmm_out(own, own, rows.narrow(1, part.first, part.out), params[part.b], /*beta=*/0,
                  /*alpha=*/adapters.scale);
  }
  return narrow.view(with_last(g, adapters.width()));
}

void Projection::input_grad(const Params& params, const Tensor& g, const Tensor& result,
                            Tensor narrow) const {
  Tensor rows = rows_of(result);
  const Tensor turned = transposed(params, *this).t();
  if (adapters.count() == 0) {
    at::mm_out(rows, rows_of(g), turned);
    return;
  }
  if (!narrow.defined()) narrow = adapter_grad(params, g);
  at::mm_out(rows, rows_of(narrow), params.joined(adapters.a, adapters.count()));
  at::addmm_out(rows, rows, rows_of(g), turned);
}

void Projection::report_bias(GradSink& sink, const Tensor& g) const {
  if (bias < 0 || !trains_bias) return;
  CategoryScope scope(Category::temporary);
  const Tensor per_sample = empty_tensor({g.size(0), out}, sum_dtype(g.scalar_type()), g.device());
  token_sum(g, per_sample);
  sink.direct(bias, per_sample);
}

void Projection::report(const Params& params, GradSink& sink, const Tensor& a, const Tensor& g,
                        Tensor narrow) const {
  if (trains_weight) {
    if (in_out) {
      sink.linear({weight}, g, a);  // the stored rows are the inputs: dW = a^T g
    } else {
      sink.linear({weight}, a, g);
    }
  }
  if (adapters.count() > 0) {
    CategoryScope scope(Category::temporary);
    const Tensor rows = rows_of(a);
    Tensor inner = empty_tensor({rows.size(0), adapters.width()}, a.scalar_type(), a.device());
    at::addmm_out(inner, inner, rows, params.joined(adapters.a, adapters.count()).t(),
                  /*beta=*/0, /*alpha=*/adapters.scale);
    inner = inner.view(with_last(a, adapters.width()));
    for (int i = 0; i < adapters.count(); ++i) {
      const Adapters::Part& part = adapters.parts[static_cast<size_t>(i)];
      sink.linear({part.b}, inner.narrow(-1, i * adapters.rank, adapters.rank),
                  g.narrow(-1, part.first, part.out));
    }
    inner.reset();
    if (!narrow.defined()) narrow = adapter_grad(params, g);
    sink.linear({adapters.a}, a, narrow);
  }
  report_bias(sink, g);
}

void Projection::report(GradSink& sink, const Tensor& a, const Tensor& g) const {
  VEIL_CHECK(adapters.count() == 0, "adapters are reported with the parameters");
  if (in_out) {
    sink.linear({weight}, g, a);
  } else {
    sink.linear({weight}, a, g);
  }
  report_bias(sink, g);
}

void Projection::report(GradSink& sink, const Tensor& a, const Tensor& g,
                        const Tensor& bias_grad) const {
  VEIL_CHECK(!in_out && bias >= 0 && adapters.count() == 0, "sums for a bias that is not there");
  sink.linear({weight}, a, g);
  sink.direct(bias, bias_grad);
}

void Projection::add_shape(BlockShape& shape, int64_t batch, int64_t tokens) const {
  for (int i = 0; i < joined; ++i) shape.params.push_back(weight + i);
  shape.reports.push_back({weight, in * out, Report::By::linear, false, batch, tokens,
                           in_out ? in : out, in_out ? out : in});
  if (bias >= 0) {
    for (int i = 0; i < joined; ++i) shape.params.push_back(bias + i);
    shape.reports.push_back({bias, out, Report::By::direct, false, batch});
  }
  if (adapters.count() == 0) return;
  for (int i = 0; i < adapters.count(); ++i) shape.params.push_back(adapters.a + i);
  shape.reports.push_back({adapters.a, adapters.width() * in, Report::By::linear, false, batch,
                           tokens, adapters.width(), in});
  for (const Adapters::Part& part : adapters.parts) {
    shape.params.push_back(part.b);
    shape.reports.push_back({part.b, part.out * adapters.rank, Report::By::linear, false, batch,
                             tokens, part.out, adapters.rank});
  }
}

void Projection::report_moments(Moments& moments, BlockShape& shape, int64_t batch, int64_t tokens,
                                DType compute, bool on_gpu, Moments::Id a, Moments::Id g,
                                Moments::Id narrow) const {
  if (trains_weight) moments.report(shape, weight, {a, g});
  if (adapters.count() > 0) {
    const int64_t bytes = adapter_bytes(batch * tokens, compute);
    const Moments::Id inner = moments.make(bytes);
    for (const Adapters::Part& part : adapters.parts) moments.report(shape, part.b, {inner, g});
    moments.drop(inner);
    const bool own = narrow == Moments::kNone;
    if (own) narrow = moments.make(bytes);
    moments.report(shape, adapters.a, {a, narrow});
    if (own) moments.drop(narrow);
  }
  if (bias < 0 || !trains_bias) return;
  const Moments::Id sums = moments.make(batch * out * dtype_bytes(sum_dtype(compute)));
  moments.pass(token_sum_scratch_bytes(batch, tokens, out, compute, on_gpu));
  moments.report(shape, bias, {sums});
  moments.drop(sums);
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
