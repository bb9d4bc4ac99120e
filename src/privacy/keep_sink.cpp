#include "privacy/keep_sink.h"

#include "kernels/embedding_grad.h"
#include "privacy/sample_product.h"
#include "tensor/category.h"

namespace veil::privacy {

KeepSink::KeepSink(std::vector<int64_t> numel_of_param, std::vector<bool> booked_param,
                   Target target, GradSink& booked)
    : numel_(std::move(numel_of_param)),
      booked_param_(std::move(booked_param)),
      target_(std::move(target)),
      booked_(booked),
      seen_(numel_.size()) {}

void KeepSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  if (booked_param_[static_cast<size_t>(of.param)]) {  // the block lets go of its own
    CategoryScope scope(Category::clip_records);
    return booked_.linear(of, a.clone(at::MemoryFormat::Contiguous),
                          g.clone(at::MemoryFormat::Contiguous));
  }
  CategoryScope scope(Category::temporary);
  const Tensor all_a = samples_of(a), all_g = samples_of(g);
  const int64_t samples = all_a.size(0), rows = all_g.size(2), columns = all_a.size(2);
  const Tensor kept =
      target_(of.param, of.row * columns, rows * columns).narrow(0, of.first_sample, samples);
  Tensor out = kept.as_strided({samples, rows, columns}, {kept.stride(0), columns, 1});
  constexpr int64_t kMostSamples = int64_t{1} << 20;
  const bool add = seen_.again(of.param, of.row * kMostSamples + of.first_sample);
  product_into(out, all_g.transpose(1, 2), all_a, add);
}

void KeepSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  if (booked_param_[static_cast<size_t>(table)]) return booked_.embedding(table, ids, g);
  const bool add = seen_.any(table);
  seen_.again(table, 0);
  const Tensor kept = target_(table, 0, numel_[static_cast<size_t>(table)]);
  for (int64_t i = 0; i < ids.size(0); ++i)
    embedding_grad(ids.select(0, i), g.select(0, i), kept.select(0, i).view({-1, g.size(-1)}), add);
}

void KeepSink::direct(ParamId param, const Tensor& per_sample) {
  const Tensor flat = per_sample.reshape({per_sample.size(0), -1});
  const int64_t count = flat.size(1), whole = numel_[static_cast<size_t>(param)];
  const bool add = seen_.again(param, 0);
  const Tensor kept = target_(param, 0, count);
  if (add) {
    kept.add_(flat);
  } else {
    kept.copy_(flat);
    if (count < whole) target_(param, count, whole - count).zero_();
  }
}

}  // namespace veil::privacy
