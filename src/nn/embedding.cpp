#include "nn/embedding.h"

#include <ATen/ops/index_select.h>

namespace veil {
namespace {

// Adds (scale - 1) times x: a product with a number would make a tensor of the number first, which
// is memory that no row requested.
void scale_embedding(Tensor& x, double scale) {
  const double rounded = x.scalar_type() == at::kBFloat16
                             ? static_cast<double>(c10::BFloat16(static_cast<float>(scale)))
                         : x.scalar_type() == at::kHalf
                             ? static_cast<double>(c10::Half(static_cast<float>(scale)))
                             : scale;
  x.add_(x, rounded - 1);
}

}  // namespace

Flow Embedding::forward(const Params& params, const Flow& in, Tape& tape) const {
  const Tensor& ids = in.hidden;  // [batch, tokens]
  Tensor out =
      at::index_select(params[table_], 0, ids.view({-1})).view({ids.size(0), ids.size(1), width_});
  if (scale_ != 0) scale_embedding(out, scale_);
  if (positions_ >= 0) out.add_(params[positions_].narrow(0, 0, ids.size(1)));
  tape.input = ids;
  return {out, {}, ids};
}

Flow Embedding::recompute(const Params&, const Flow& in, Tape& tape) const {
  tape.input = in.hidden;
  return {};
}

Tensor Embedding::decode(const Params& params, const Tensor& ids, const LayerCache&,
                         const DecodeStep& step) const {
  Tensor out = at::index_select(params[table_], 0, ids.view({-1}));
  if (scale_ != 0) scale_embedding(out, scale_);
  if (positions_ >= 0) out.add_(at::index_select(params[positions_], 0, step.positions));
  return out.view({ids.size(0), 1, width_});
}

Flow Embedding::backward(const Params&, Flow grad, const Tape& tape, GradSink& sink, bool) const {
  if (scale_ != 0) scale_embedding(grad.hidden, scale_);  // there are no positions then
  sink.embedding(table_, tape.input, grad.hidden);
  if (positions_ >= 0) sink.direct(positions_, grad.hidden.view({grad.hidden.size(0), -1}));
  return {};
}

BlockShape Embedding::shape(int64_t batch, DType compute, bool) const {
  BlockShape shape;
  shape.name = name_;
  shape.params = {table_};
  shape.reports = {{table_, 0, Report::By::embedding, false, batch, tokens_}};
  if (positions_ >= 0) {
    shape.params.push_back(positions_);
    shape.reports.push_back({positions_, tokens_ * width_, Report::By::direct, false, batch});
  }
  shape.output_bytes = batch * tokens_ * width_ * dtype_bytes(compute);
  shape.keeps_input = true;
  shape.recompute_skips_output = true;
  return shape;
}

}  // namespace veil
