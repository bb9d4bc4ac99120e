#include "privacy/clipped_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "tensor/category.h"

namespace veil::privacy {
namespace {

// The samples' coefficients in front of x's other dimensions.
Tensor beside(const Tensor& coefficients, const Tensor& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.dim()), 1);
  dims[0] = x.size(0);
  return coefficients.view(dims);
}

}  // namespace

Tensor ClippedSink::selected(const Tensor& x, int64_t first_sample) const {
  const Tensor counts = beside(coefficients_.narrow(0, first_sample, x.size(0)), x).gt(0);
  return at::where(counts, x, at::zeros({}, x.options()));
}

Tensor ClippedSink::scaled(const Tensor& x, int64_t first_sample) const {
  const Tensor c = beside(coefficients_.narrow(0, first_sample, x.size(0)), x);
  return selected(x, first_sample).mul_(c).to(x.scalar_type());
}

void ClippedSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  CategoryScope scope(Category::temporary);
  sum_.linear(of, selected(a, of.first_sample), scaled(g, of.first_sample));
}

void ClippedSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  CategoryScope scope(Category::temporary);
  sum_.embedding(table, ids, scaled(g, 0));
}

void ClippedSink::direct(ParamId param, const Tensor& per_sample) {
  CategoryScope scope(Category::temporary);
  sum_.direct(param, scaled(per_sample, 0));
}

}  // namespace veil::privacy
