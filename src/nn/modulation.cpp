#include "nn/modulation.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "tensor/category.h"

namespace veil {

Tensor Modulation::forward(const Params& params, const Tensor& condition) const {
  return map.forward(params, condition);
}

Tensor Modulation::backward(const Params& params, const Tensor& condition, const Tensor& grads,
                            const Tensor& before, GradSink& sink) const {
  const DType compute = condition.scalar_type(), real = grads.scalar_type();
  Tensor narrow = grads;  // a product's factors have one type
  if (compute != real) {
    CategoryScope scope(Category::temporary);
    narrow = grads.to(compute);
  }
  map.report(sink, condition, narrow, grads);
  Tensor result = empty_tensor(condition.sizes(), real, condition.device());
  const Tensor& weight = params[map.weight];
  if (compute == real) {
    if (before.defined()) {
      at::addmm_out(result, before, narrow, weight);
    } else {
      at::mm_out(result, narrow, weight);
    }
    return result;
  }
  if (narrow.is_cuda()) {  // cuBLAS adds 16-bit products up in fp32 and leaves them so
    at::mm_out(result, narrow, weight, real);
  } else {
    CategoryScope scope(Category::temporary);
    result.copy_(at::mm(narrow, weight));
  }
  if (before.defined()) result.add_(before);
  return result;
}

int64_t Modulation::backward_scratch_bytes(int64_t batch, DType compute) const {
  return compute == sum_dtype(compute)
             ? 0
             : bytes(batch, compute) + batch * width * dtype_bytes(compute);
}

int64_t condition_grad_bytes(int64_t batch, int64_t width, DType compute) {
  return batch * width * dtype_bytes(sum_dtype(compute));
}

}  // namespace veil
