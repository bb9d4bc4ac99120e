#include "nn/norm.h"

#include <ATen/ops/empty_like.h>

#include "kernels/norm.h"
#include "tensor/category.h"

namespace veil {

Tensor Norm::forward(const Params& params, const Tensor& x, const Tensor& add,
                     Statistics& statistics) const {
  Tensor out = at::empty_like(x);
  const int64_t rows = x.numel() / width;
  const DType real = sum_dtype(x.scalar_type());
  statistics.rstd = empty_tensor({rows}, real, x.device());
  if (bias < 0) {
    rms_norm(x, add, params[weight], epsilon, add, out, statistics.rstd, offset);
  } else {
    statistics.mean = empty_tensor({rows}, real, x.device());
    layer_norm(x, add, params[weight], params[bias], epsilon, add, out, statistics.mean,
               statistics.rstd);
  }
  return out;
}

void Norm::backward(const Params& params, const Tensor& dy, const Tensor& x,
                    const Statistics& statistics, const Tensor& residual, GradSink& sink) const {
  backward_into(params, dy, x, statistics, residual, dy, sink);
}

void Norm::backward_into(const Params& params, const Tensor& dy, const Tensor& x,
                         const Statistics& statistics, const Tensor& residual, const Tensor& dx,
                         GradSink& sink) const {
  CategoryScope scope(Category::temporary);
  const Tensor weight_grad =
      empty_tensor({x.size(0), width}, sum_dtype(x.scalar_type()), x.device());
  if (bias < 0) {
    rms_norm_backward(dy, x, params[weight], statistics.rstd, residual, dx, weight_grad, offset);
    sink.direct(weight, weight_grad);
    return;
  }
  const Tensor bias_grad = at::empty_like(weight_grad);
  layer_norm_backward(dy, x, params[weight], statistics.mean, statistics.rstd, residual, dx,
                      weight_grad, bias_grad);
  sink.direct(weight, weight_grad);
  sink.direct(bias, bias_grad);
}

Tensor Norm::again(const Params& params, const Tensor& x) const {
  CategoryScope scope(Category::temporary);
  Statistics unused;
  return forward(params, x, {}, unused);
}

void Norm::backward_moments(Moments& moments, BlockShape& shape, int64_t batch, int64_t tokens,
                            DType compute, bool on_gpu) const {
  const int64_t sums = batch * width * dtype_bytes(sum_dtype(compute));
  const Moments::Id of_weight = moments.make(sums),
                    of_bias = bias < 0 ? Moments::kNone : moments.make(sums);
  moments.pass(norm_backward_scratch_bytes(batch, tokens, width, compute, on_gpu) *
               (bias < 0 ? 1 : 2));
  moments.report(shape, weight, {of_weight});
  moments.report(shape, bias, {of_bias});
  moments.drop(of_weight);
  moments.drop(of_bias);
}

void Norm::add_shape(BlockShape& shape, int64_t batch) const {
  for (ParamId id : {weight, bias}) {
    if (id < 0) continue;
    shape.params.push_back(id);
    shape.reports.push_back({id, width, Report::By::direct, false, batch});
  }
}

int64_t Norm::statistics_bytes(int64_t rows, DType compute) const {
  return rows * dtype_bytes(sum_dtype(compute)) * (bias < 0 ? 1 : 2);
}

int64_t Norm::backward_scratch_bytes(int64_t batch, int64_t tokens, DType compute,
                                     bool on_gpu) const {
  const int64_t grads = batch * width * dtype_bytes(sum_dtype(compute));
  return (grads + norm_backward_scratch_bytes(batch, tokens, width, compute, on_gpu)) *
         (bias < 0 ? 1 : 2);
}

}  // namespace veil
