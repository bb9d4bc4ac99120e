#include "nn/diffusion_embedding.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <algorithm>

#include "kernels/timestep_features.h"
#include "nn/modulation.h"
#include "tensor/category.h"

namespace veil {
namespace {

enum Place { kPatches, kFeatures, kIds, kTime, kTimeActive, kCondition };  // in Tape::saved

}  // namespace

Tensor DiffusionEmbedding::run(const Params& params, const Flow& in, Tape& tape) const {
  const int64_t batch = in.hidden.size(0);
  const DType compute = in.hidden.scalar_type();
  const Tensor features = empty_tensor({batch, l_.time_in.in}, compute, in.hidden.device());
  const Tensor ids = empty_tensor({batch}, at::kLong, in.hidden.device());
  timestep_features(in.condition, l_.labels, features, ids);
  const Tensor time = l_.time_in.forward(params, features), active = at::silu(time);
  Tensor condition = l_.time_out.forward(params, active);  // [batch, hidden]
  {
    CategoryScope scope(Category::temporary);
    condition.add_(at::index_select(params[l_.table], 0, ids));
  }
  tape.saved = {l_.grid.channels_first(in.hidden), features, ids, time, active, condition};
  return condition;
}

Flow DiffusionEmbedding::forward(const Params& params, const Flow& in, Tape& tape) const {
  const Tensor condition = at::silu(run(params, in, tape));
  Tensor hidden = l_.patches.forward(params, tape.saved[kPatches]);
  hidden.add_(params[l_.positions]);
  return {hidden, condition};
}

Flow DiffusionEmbedding::recompute(const Params& params, const Flow& in, Tape& tape) const {
  run(params, in, tape);
  return {};
}

Flow DiffusionEmbedding::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                                  bool) const {
  CategoryScope scope(Category::temporary);
  const Tensor& dy = grad.hidden;
  const int64_t batch = dy.size(0);
  const DType compute = dy.scalar_type(), real = sum_dtype(compute);
  sink.direct(l_.positions, dy.view({batch, -1}));
  l_.patches.report(sink, tape.saved[kPatches], dy);
  Tensor d_time;
  {
    // In the conditioning's wide type up to here.
    const Tensor wide = at::silu_backward(grad.condition, tape.saved[kCondition].to(real)),
                 narrow = wide.to(compute);
    sink.embedding(l_.table, tape.saved[kIds].view({batch, 1}), narrow.view({batch, 1, l_.hidden}));
    l_.time_out.report(sink, tape.saved[kTimeActive], narrow, wide);
    d_time = at::mm(narrow, params[l_.time_out.weight]);
  }
  d_time = at::silu_backward(d_time, tape.saved[kTime]);
  l_.time_in.report(sink, tape.saved[kFeatures], d_time, d_time);
  return {};
}

BlockShape DiffusionEmbedding::shape(int64_t batch, DType compute, bool on_gpu) const {
  const int64_t element = dtype_bytes(compute), vectors = batch * l_.hidden * element,
                wide = condition_grad_bytes(batch, l_.hidden, compute);
  const int64_t rows = batch * l_.grid.tokens();
  BlockShape shape;
  shape.name = "embed";
  shape.params = {l_.positions};
  shape.reports = {{l_.positions, l_.grid.tokens() * l_.hidden, Report::By::direct, false, batch}};
  l_.patches.add_shape(shape, batch, l_.grid.tokens());
  l_.time_in.add_shape(shape, batch, 1);
  l_.time_out.add_shape(shape, batch, 1);
  shape.params.push_back(l_.table);
  shape.reports.push_back({l_.table, 0, Report::By::embedding, false, batch, 1});
  // Backward: a 16-bit conditioning is widened for its own gradient, which is narrowed again for
  // the products.
  const bool widened = compute != sum_dtype(compute);
  const int64_t both = wide + (widened ? vectors : 0),
                patch_sums = batch * l_.hidden * dtype_bytes(sum_dtype(compute));
  l_.patches.set_moment(shape, 0, 0, patch_sums);
  shape.reports.back().live_bytes = both;
  shape.reports.back().held_bytes = patch_sums + both;
  l_.time_out.set_moment(shape, both, patch_sums + both);
  l_.time_in.set_moment(shape, vectors, patch_sums + both + vectors);
  shape.booked_bytes = patch_sums + both + vectors;
  shape.output_bytes = rows * l_.hidden * element + vectors;
  shape.output_grad_bytes = rows * l_.hidden * element + wide;
  shape.saved_bytes = rows * l_.grid.patch_numel() * element + batch * l_.time_in.in * element +
                      batch * dtype_bytes(at::kLong) + 3 * vectors;
  shape.recompute_skips_output = true;
  const int64_t patches = l_.patches.report_scratch_bytes(batch, l_.grid.tokens(), compute, on_gpu),
                conditioning = widened ? 2 * wide : wide;
  shape.backward_scratch_bytes = std::max({patches, conditioning, both + vectors, 2 * vectors});
  // Where reports are held, what patches and conditioning left stays.
  shape.book_scratch_bytes =
      std::max({patches, patch_sums + conditioning, patch_sums + both + 2 * vectors}) -
      shape.booked_bytes;
  shape.forward_flops = l_.patches.flops(rows) + l_.time_in.flops(batch) + l_.time_out.flops(batch);
  return shape;
}

}  // namespace veil
