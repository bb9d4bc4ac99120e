#include "privacy/clipped_sink.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/embedding_grad.h"
#include "kernels/sample_combine.h"
#include "kernels/sample_products.h"
#include "kernels/tensor_arguments.h"
#include "privacy/sample_product.h"
#include "tensor/category.h"

namespace veil::privacy {
namespace {

// Products of a GPU's samples go through a buffer of about this size, in parts whose rows are a
// multiple of 64 (of 8, if 64 do not fit): parts that begin at odd addresses take slow kernels.
constexpr int64_t kProductBytes = int64_t{64} << 20, kWholeRows = 64, kFewestRows = 8;

int64_t product_rows(int64_t samples, int64_t rows, int64_t columns, int64_t real_bytes) {
  const int64_t fit = kProductBytes / std::max<int64_t>(1, samples * columns * real_bytes);
  const int64_t unit = fit >= kWholeRows ? kWholeRows : kFewestRows;
  return std::min(rows, std::max(unit, fit / unit * unit));
}

// One token per sample: scaled rows of g and selected rows of a, then one product over the samples.
void add_outer(const Tensor& a, const Tensor& g, const Tensor& coefficients, Tensor& out,
               bool add) {
  const DType real = out.scalar_type();
  const Tensor scaled = empty_tensor({g.size(0), g.size(2)}, real, g.device());
  const Tensor chosen = empty_tensor({a.size(0), a.size(2)}, real, a.device());
  scale_samples(g, coefficients, scaled, /*select=*/false);
  scale_samples(a, coefficients, chosen, /*select=*/true);
  if (add) {
    at::addmm_out(out, out, scaled.t(), chosen);
  } else {
    at::mm_out(out, scaled.t(), chosen);
  }
}

void add_on_cpu(const Tensor& a, const Tensor& g, const Tensor& coefficients, Tensor& out,
                bool add) {
  const double* c = coefficients.data_ptr<double>();
  for (int64_t i = 0; i < a.size(0); ++i) {
    if (c[i] == 0) continue;
    const Tensor one = product_factor(a.select(0, i)), other = product_factor(g.select(0, i));
    at::addmm_out(out, out, other.t(), one, /*beta=*/add ? 1 : 0, /*alpha=*/c[i]);
    add = true;
  }
  if (!add) out.zero_();
}

void add_on_gpu(const Tensor& a, const Tensor& g, const Tensor& coefficients, const Tensor& out,
                bool add) {
  const int64_t samples = a.size(0), columns = a.size(2), rows = g.size(2);
  const int64_t height = product_rows(samples, rows, columns, dtype_bytes(out.scalar_type()));
  const Tensor work = empty_tensor({samples * height * columns}, out.scalar_type(), a.device());
  for (int64_t r = 0; r < rows; r += height) {
    const int64_t count = std::min(height, rows - r);
    Tensor products = work.narrow(0, 0, samples * count * columns).view({samples, count, columns});
    product_into(products, g.narrow(2, r, count).transpose(1, 2), a, /*add=*/false);
    combine_samples(products, coefficients, out.narrow(0, r, count).view({-1}), add);
  }
}

}  // namespace

Tensor ClipCoefficients::of(ParamId param, int64_t first_sample, int64_t samples) const {
  return values.select(0, layer_of[static_cast<size_t>(param)]).narrow(0, first_sample, samples);
}

ClippedSink::ClippedSink(std::vector<int64_t> numel_of_param, bool accumulate, Target target,
                         ClipCoefficients coefficients)
    : numel_(std::move(numel_of_param)),
      accumulate_(accumulate),
      target_(std::move(target)),
      coefficients_(std::move(coefficients)),
      seen_(numel_.size()) {}

void ClippedSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  CategoryScope scope(Category::temporary);
  const Tensor all_a = samples_of(a), all_g = samples_of(g);
  const int64_t rows = all_g.size(2), columns = all_a.size(2);
  Tensor out = target_(of.param, of.row * columns, rows * columns).view({rows, columns});
  const bool add = seen_.again(of.param, of.row) || accumulate_;
  const Tensor coefficients = coefficients_.of(of.param, of.first_sample, all_a.size(0));
  if (all_a.size(1) == 1) {
    add_outer(all_a, all_g, coefficients, out, add);
  } else if (sample_products_can_read(all_a, all_g) && sample_products_can_write(out)) {
    clipped_product(all_a, all_g, coefficients, out, add);
  } else if (out.is_cuda()) {
    add_on_gpu(all_a, all_g, coefficients, out, add);
  } else {
    add_on_cpu(all_a, all_g, coefficients, out, add);
  }
}

void ClippedSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  const int64_t width = g.size(-1), numel = numel_[static_cast<size_t>(table)];
  const bool add = accumulate_ || seen_.any(table);  // a tied weight's head comes first
  seen_.again(table, 0);
  embedding_grad(ids.reshape({-1}), g.reshape({-1, width}),
                 target_(table, 0, numel).view({-1, width}), add,
                 coefficients_.of(table, 0, ids.size(0)));
}

void ClippedSink::direct(ParamId param, const Tensor& per_sample) {
  const int64_t samples = per_sample.size(0),
                count = per_sample.numel() / std::max<int64_t>(1, samples);
  const int64_t whole = numel_[static_cast<size_t>(param)];
  const bool add = seen_.again(param, 0) || accumulate_;
  combine_samples(per_sample, coefficients_.of(param, 0, samples), target_(param, 0, count), add);
  if (!add && count < whole) target_(param, count, whole - count).zero_();
}

int64_t clipped_sink_scratch_bytes(const Report& report, DType compute, bool on_gpu,
                                   bool sample_products) {
  const int64_t real = dtype_bytes(sum_dtype(compute));
  switch (report.by) {
    case Report::By::embedding:
      return embedding_grad_scratch_bytes(report.samples * report.tokens, on_gpu);
    case Report::By::direct:
      return 0;
    case Report::By::linear:
      break;
  }
  if (report.tokens == 1) return report.samples * (report.rows + report.columns) * real;
  if (sample_products && sample_products_fit(compute, report.tokens, report.rows, report.columns))
    return 0;
  if (on_gpu) {
    return report.samples * product_rows(report.samples, report.rows, report.columns, real) *
           report.columns * real;
  }
  return dtype_bytes(compute) >= 4 ? 0 : report.tokens * (report.rows + report.columns) * real;
}

}  // namespace veil::privacy
