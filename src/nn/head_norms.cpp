#include "nn/head_norms.h"

#include <ATen/ops/empty_like.h>

#include "tensor/category.h"

namespace veil {
namespace {

// Columns of the joint product that one norm is for.
struct NormedColumns {
  const Norm& norm;
  int64_t first, width;
};
std::vector<NormedColumns> normed_columns(const HeadNorms& norms, const Attention& a) {
  return {{norms.query, 0, a.heads * a.head_dim},
          {norms.key, a.heads * a.head_dim, a.kv_heads * a.head_dim}};
}

// The columns as rows of the norm's width, next to each other: [batch, rows of a sample, width].
Tensor rows_of_columns(const Tensor& joint, const NormedColumns& columns) {
  return joint.narrow(2, columns.first, columns.width)
      .contiguous()
      .view({joint.size(0), -1, columns.norm.width});
}

void put_columns(const Tensor& joint, const NormedColumns& columns, const Tensor& rows) {
  const Tensor to = joint.narrow(2, columns.first, columns.width);
  to.copy_(rows.view(to.sizes()));
}

}  // namespace

Tensor HeadNorms::forward(const Params& params, const Attention& attention,
                          const Tensor& joint) const {
  const Tensor out = at::empty_like(joint);
  CategoryScope scope(Category::temporary);
  for (const NormedColumns& columns : normed_columns(*this, attention)) {
    Norm::Statistics statistics;
    put_columns(out, columns,
                columns.norm.forward(params, rows_of_columns(joint, columns), {}, statistics));
  }
  const int64_t normed = (attention.heads + attention.kv_heads) * attention.head_dim;
  const int64_t values = attention.kv_heads * attention.head_dim;
  out.narrow(2, normed, values).copy_(joint.narrow(2, normed, values));
  return out;
}

void HeadNorms::backward(const Params& params, const Attention& attention, const Tensor& d_joint,
                         const Tensor& joint, GradSink& sink) const {
  CategoryScope scope(Category::temporary);
  for (const NormedColumns& columns : normed_columns(*this, attention)) {
    const Tensor x = rows_of_columns(joint, columns);
    Norm::Statistics statistics;
    columns.norm.forward(params, x, {}, statistics);  // for its statistics alone
    const Tensor dy = rows_of_columns(d_joint, columns);
    const Tensor dx = dy.is_alias_of(d_joint) ? at::empty_like(dy) : dy;
    columns.norm.backward_into(params, dy, x, statistics, {}, dx, sink);
    put_columns(d_joint, columns, dx);
  }
}

void HeadNorms::add_shape(BlockShape& shape, int64_t batch) const {
  if (!exist()) return;
  query.add_shape(shape, batch);
  key.add_shape(shape, batch);
}

int64_t HeadNorms::forward_scratch_bytes(const Attention& attention, int64_t rows,
                                         DType compute) const {
  if (!exist()) return 0;
  const int64_t queries = rows * attention.width();  // there are at least as many as keys
  return 2 * queries * dtype_bytes(compute) +
         query.statistics_bytes(queries / query.width, compute);
}

int64_t HeadNorms::backward_scratch_bytes(const Attention& attention, int64_t batch, int64_t tokens,
                                          DType compute, bool on_gpu) const {
  if (!exist()) return 0;
  const int64_t rows = attention.width() / query.width * tokens;
  return forward_scratch_bytes(attention, batch * tokens, compute) +
         query.backward_scratch_bytes(batch, rows, compute, on_gpu);
}

}  // namespace veil
