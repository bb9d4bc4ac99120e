#include "nn/encoder_embedding.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "kernels/token_sum.h"
#include "tensor/category.h"

namespace veil {
namespace {

enum EncoderSaved { kSum, kPositions, kRstd, kMean };

// [batch, tokens]: real tokens count up from padding_id + 1, padding stays at padding_id.
Tensor position_ids(const Tensor& ids, int64_t padding_id) {
  CategoryScope scope(Category::temporary);
  const Tensor real = ids.ne(padding_id);
  Tensor positions = at::cumsum(real, 1);
  positions.mul_(real).add_(padding_id);
  return positions;
}

}  // namespace

Flow EncoderEmbedding::forward(const Params& params, const Flow& in, Tape& tape) const {
  const Tensor& ids = in.hidden;  // [batch, tokens]
  const std::vector<int64_t> dims = {ids.size(0), ids.size(1), l_.hidden};
  Tensor positions = ids.clone();
  positions.copy_(position_ids(ids, l_.padding_id));
  Tensor sum = at::index_select(params[l_.table], 0, ids.view({-1})).view(dims);
  {
    CategoryScope scope(Category::temporary);
    sum.add_(at::index_select(params[l_.positions], 0, positions.view({-1})).view(dims));
  }
  sum.add_(params[l_.types].select(0, 0));
  Norm::Statistics statistics;
  const Tensor out = l_.norm.forward(params, sum, {}, statistics);
  tape.input = ids;
  tape.saved = {sum, positions, statistics.rstd, statistics.mean};
  return {out, {}, ids};
}

Flow EncoderEmbedding::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                                bool) const {
  const Tensor& d_sum = grad.hidden;  // overwritten
  l_.norm.backward(params, d_sum, tape.saved[kSum], {tape.saved[kRstd], tape.saved[kMean]}, {},
                   sink);
  sink.embedding(l_.table, tape.input, d_sum);
  sink.embedding(l_.positions, tape.saved[kPositions], d_sum);
  CategoryScope scope(Category::temporary);
  const Tensor types =
      empty_tensor({d_sum.size(0), l_.hidden}, sum_dtype(d_sum.scalar_type()), d_sum.device());
  token_sum(d_sum, types);
  sink.direct(l_.types, types);
  return {};
}

BlockShape EncoderEmbedding::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t rows = batch * l_.tokens,
                sums = batch * l_.hidden * dtype_bytes(sum_dtype(compute));
  BlockShape shape;
  shape.name = "embed";
  shape.params = {l_.table, l_.positions, l_.types};
  l_.norm.add_shape(shape, batch);
  shape.reports.push_back({l_.table, 0, Report::By::embedding, false, batch, l_.tokens});
  shape.reports.push_back({l_.positions, 0, Report::By::embedding, false, batch, l_.tokens});
  shape.reports.push_back({l_.types, l_.hidden, Report::By::direct, false, batch});
  shape.output_bytes = rows * l_.hidden * dtype_bytes(compute);
  shape.saved_bytes =
      shape.output_bytes + rows * dtype_bytes(at::kLong) + l_.norm.statistics_bytes(rows, compute);
  shape.keeps_input = true;
  const int64_t norm = l_.norm.backward_scratch_bytes(batch, l_.tokens, compute, on_gpu),
                types =
                    sums + token_sum_scratch_bytes(batch, l_.tokens, l_.hidden, compute, on_gpu);
  shape.backward_scratch_bytes = std::max(norm, types);
  // held in order: the norm's two, then the types'
  for (size_t i = 0; i < shape.reports.size(); ++i) {
    Report& report = shape.reports[i];
    report.live_bytes = report.by == Report::By::direct ? sums : 0;
    report.held_bytes = i == 0 ? sums : i + 1 < shape.reports.size() ? 2 * sums : 3 * sums;
  }
  shape.booked_bytes = 3 * sums;
  shape.book_scratch_bytes = std::max<int64_t>(0, std::max(norm, 2 * sums + types) - 3 * sums);
  return shape;
}

}  // namespace veil
