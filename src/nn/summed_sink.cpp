#include "nn/summed_sink.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/column_sum.h"
#include "tensor/category.h"

namespace veil {
namespace {

// cuBLAS writes fp32 sums of bf16 or fp16 products directly; elsewhere a product has its factors' type.
bool product_fits(DType compute, DType grad, bool on_gpu) {
  return compute == grad || (on_gpu && grad == at::kFloat && (compute == at::kBFloat16 || compute == at::kHalf));
}

}  // namespace

SummedSink::SummedSink(int params, bool accumulate, std::function<Tensor(ParamId)> target)
    : accumulate_(accumulate), target_(std::move(target)), seen_rows_(static_cast<size_t>(params)) {}

void SummedSink::begin_body() {
  for (auto& rows : seen_rows_) rows.clear();
}

bool SummedSink::adds(ParamId param, int64_t row) {
  std::vector<int64_t>& rows = seen_rows_[static_cast<size_t>(param)];
  const bool seen = std::find(rows.begin(), rows.end(), row) != rows.end();
  if (!seen) rows.push_back(row);
  return accumulate_ || seen;
}

void SummedSink::linear(ParamId weight, int64_t row, const Tensor& a, const Tensor& g) {
  const int64_t p = g.size(-1), d = a.size(-1);
  Tensor out = target_(weight).narrow(0, row, p);  // [p, d]
  const Tensor gt = g.reshape({-1, p}).t(), rows = a.reshape({-1, d});
  const bool add = adds(weight, row);
  const DType grad = out.scalar_type();
  if (!product_fits(g.scalar_type(), grad, g.is_cuda())) {
    CategoryScope scope(Category::temporary);
    const Tensor product = at::mm(gt, rows);
    if (add) {
      out.add_(product);
    } else {
      out.copy_(product);
    }
  } else if (g.scalar_type() == grad) {
    if (add) {
      at::addmm_out(out, out, gt, rows);
    } else {
      at::mm_out(out, gt, rows);
    }
  } else if (add) {
    at::addmm_out(out, out, gt, rows, grad);
  } else {
    at::mm_out(out, gt, rows, grad);
  }
}

void SummedSink::direct(ParamId param, const Tensor& per_sample) {
  column_sum(per_sample, target_(param), adds(param, 0));
}

int64_t summed_sink_scratch_bytes(const SinkScratch& report) {
  if (report.matrix) {
    if (product_fits(report.compute, report.grad, report.on_gpu)) return 0;
    // On CPU LibTorch adds two types by way of a copy in the wider one.
    const bool copied = report.accumulate && !report.on_gpu;
    return report.numel * (dtype_bytes(report.compute) + (copied ? dtype_bytes(report.grad) : 0));
  }
  return column_sum_scratch_bytes(report.samples, report.numel, report.compute, report.grad, report.on_gpu);
}

}  // namespace veil
