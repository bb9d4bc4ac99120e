#include "nn/summed_sink.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/column_sum.h"
#include "kernels/embedding_grad.h"
#include "tensor/category.h"

namespace veil {
namespace {

// cuBLAS writes fp32 sums of bf16 or fp16 products directly; elsewhere a product has its factors'
// type.
bool product_fits(DType compute, DType grad, bool on_gpu) {
  return compute == grad ||
         (on_gpu && grad == at::kFloat && (compute == at::kBFloat16 || compute == at::kHalf));
}

}  // namespace

SummedSink::SummedSink(std::vector<int64_t> numel_of_param, bool accumulate, Target target)
    : accumulate_(accumulate),
      target_(std::move(target)),
      numel_(std::move(numel_of_param)),
      seen_(numel_.size()) {}

void SummedSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  const int64_t p = g.size(-1), d = a.size(-1);
  Tensor out = target_(of.param, of.row * d, p * d).view({p, d});
  const Tensor gt = g.reshape({-1, p}).t(), rows = a.reshape({-1, d});
  const bool add = adds(of.param, of.row);
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

void SummedSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  const int64_t width = g.size(-1), numel = numel_[static_cast<size_t>(table)];
  const bool add = accumulate_ || seen_.any(table);  // a tied weight's head comes first
  adds(table, 0);
  embedding_grad(ids.reshape({-1}), g.reshape({-1, width}),
                 target_(table, 0, numel).view({-1, width}), add);
}

void SummedSink::direct(ParamId param, const Tensor& per_sample) {
  const int64_t count = per_sample.numel() / std::max<int64_t>(1, per_sample.size(0));
  const int64_t whole = numel_[static_cast<size_t>(param)];
  const bool add = adds(param, 0);
  column_sum(per_sample, target_(param, 0, count), add);
  if (!add && count < whole) target_(param, count, whole - count).zero_();
}

int64_t summed_sink_scratch_bytes(const SinkScratch& report) {
  switch (report.by) {
    case Report::By::linear: {
      if (product_fits(report.compute, report.grad, report.on_gpu)) return 0;
      // On CPU LibTorch adds two types by way of a copy in the wider one.
      const bool copied = report.accumulate && !report.on_gpu;
      return report.numel * (dtype_bytes(report.compute) + (copied ? dtype_bytes(report.grad) : 0));
    }
    case Report::By::embedding:
      return embedding_grad_scratch_bytes(report.samples, report.on_gpu);
    case Report::By::direct:
      return column_sum_scratch_bytes(report.samples, report.numel, report.compute, report.grad,
                                      report.on_gpu);
  }
  return 0;
}

}  // namespace veil
