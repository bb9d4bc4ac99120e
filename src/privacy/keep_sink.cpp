#include "privacy/keep_sink.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/embedding_grad.h"
#include "kernels/sample_norm.h"
#include "kernels/sample_products.h"
#include "privacy/sample_product.h"
#include "tensor/category.h"

namespace veil::privacy {

KeepSink::KeepSink(std::vector<int64_t> numel_of_param, std::vector<bool> booked_param,
                   Target target, GradSink& booked, Tensor squared)
    : numel_(std::move(numel_of_param)),
      booked_param_(std::move(booked_param)),
      target_(std::move(target)),
      booked_(booked),
      squared_(std::move(squared)),
      seen_(numel_.size()),
      norming_(numel_.size()),
      found_(numel_.size()) {}

void KeepSink::begin_body() {
  seen_.clear();
  std::fill(norming_.begin(), norming_.end(), Norming::unreported);
  std::fill(found_.begin(), found_.end(), 0);
}

bool KeepSink::normed(ParamId param) const {
  const auto id = static_cast<size_t>(param);
  if (norming_[id] != Norming::found) return false;
  VEIL_CHECK(found_[id] == numel_[id] * squared_.size(1),
             "parameter {}: {} numbers of {} are in its norms", param, found_[id],
             numel_[id] * squared_.size(1));
  return true;
}

void KeepSink::norm_afterwards(ParamId param) {
  Norming& norming = norming_[static_cast<size_t>(param)];
  if (norming == Norming::found) squared_.select(0, param).zero_();
  norming = Norming::afterwards;
}

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
  const std::vector<launch::SamplePiece> pieces =
      pieces_of(of, rows, numel_.size(), [&](size_t id) { return numel_[id] / columns; });
  const bool together =
      !add && std::all_of(pieces.begin(), pieces.end(), [&](const launch::SamplePiece& piece) {
        return norming_[static_cast<size_t>(piece.row)] != Norming::afterwards;
      });
  if (together && sample_products_can_read(all_a, all_g) &&
      out.scalar_type() == all_a.scalar_type() && kept_product_can_write(out, pieces)) {
    kept_product(all_a, all_g, out, pieces, squared_, of.first_sample);
    for (const launch::SamplePiece& piece : pieces) {
      norming_[static_cast<size_t>(piece.row)] = Norming::found;
      found_[static_cast<size_t>(piece.row)] += piece.count * columns * samples;
    }
    return;
  }
  product_into(out, all_g.transpose(1, 2), all_a, add);
  for (const launch::SamplePiece& piece : pieces) norm_afterwards(static_cast<ParamId>(piece.row));
}

void KeepSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  if (booked_param_[static_cast<size_t>(table)]) return booked_.embedding(table, ids, g);
  const bool add = seen_.any(table);
  seen_.again(table, 0);
  const Tensor kept = target_(table, 0, numel_[static_cast<size_t>(table)]);
  if (add && normed(table)) {  // a tied table, whose head came first
    embedding_grads_normed(ids, g, kept, squared_.select(0, table));
    return;
  }
  norm_afterwards(table);
  embedding_grads(ids, g, kept, add);
}

void KeepSink::direct(ParamId param, const Tensor& per_sample) {
  const Tensor flat = per_sample.reshape({per_sample.size(0), -1});
  const int64_t count = flat.size(1), whole = numel_[static_cast<size_t>(param)];
  const bool add = seen_.again(param, 0);
  const Tensor kept = target_(param, 0, count);
  const std::vector<SampleSegment> segments =
      segments_of(param, count, numel_.size(), [&](size_t id) { return numel_[id]; });
  // One kernel copies and norms whole parameters that are not too long for a block of its threads.
  constexpr int64_t kFew = 1 << 14;
  const bool together =
      !add && flat.stride(1) == 1 && flat.scalar_type() == sum_dtype(kept.scalar_type()) &&
      std::all_of(segments.begin(), segments.end(), [&](const SampleSegment& segment) {
        const auto id = static_cast<size_t>(segment.row);
        return segment.numel <= kFew && segment.numel == numel_[id] &&
               norming_[id] == Norming::unreported;
      });
  if (together) {
    copy_normed(flat, kept, segments, squared_);
    for (const SampleSegment& segment : segments) {
      norming_[static_cast<size_t>(segment.row)] = Norming::found;
      found_[static_cast<size_t>(segment.row)] += segment.numel * flat.size(0);
    }
    return;
  }
  for (const SampleSegment& segment : segments) norm_afterwards(static_cast<ParamId>(segment.row));
  if (add) {
    kept.add_(flat);
  } else {
    kept.copy_(flat);
    if (count < whole) target_(param, count, whole - count).zero_();
  }
}

int64_t keep_sink_scratch_bytes(const Report& report, DType compute, bool on_gpu,
                                bool sample_products) {
  if (report.by == Report::By::embedding)
    return embedding_grad_scratch_bytes(report.samples * report.tokens, on_gpu);
  const bool found_on_the_way =
      sample_products && report.by == Report::By::linear &&
      sample_products_fit(compute, report.tokens, report.rows, report.columns);
  return found_on_the_way ? kept_product_scratch_bytes(report.samples, report.rows, report.columns)
                          : 0;
}

}  // namespace veil::privacy
