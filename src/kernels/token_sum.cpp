#include "kernels/token_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {

int64_t token_sum_scratch_bytes(int64_t batch, int64_t tokens, int64_t width, DType dtype,
                                bool on_gpu) {
  const int64_t strips = launch::sample_strips(batch, tokens);
  return on_gpu && strips > 1 ? batch * strips * width * dtype_bytes(real_of(dtype)) : 0;
}

Tensor token_sum_scratch(const Tensor& x) {
  CategoryScope scope(Category::temporary);
  const DType real = real_of(x.scalar_type());
  const int64_t bytes =
      token_sum_scratch_bytes(x.size(0), x.size(1), x.size(2), x.scalar_type(), x.is_cuda());
  return bytes ? empty_tensor({bytes / dtype_bytes(real)}, real, x.device()) : Tensor();
}

void token_sum(const Tensor& x, const Tensor& out) {
  VEIL_CHECK(x.dim() == 3 && fits(out, real_of(x.scalar_type()), x.size(0) * x.size(2)) &&
                 (x.stride(2) == 1 || x.size(2) <= 1),
             "token_sum into {} elements", out.numel());
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const int64_t batch_stride = x.stride(0), token_stride = x.stride(1);
  if (out.numel() == 0) return;
  if (x.is_cuda()) {
    const Tensor partial = token_sum_scratch(x);
    launch::token_sum({x.data_ptr(), element_of(x), batch_stride, token_stride, out.data_ptr(),
                       pointer_or_null(partial), batch, tokens, width,
                       Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "token_sum", [&] {
    using real = at::opmath_type<scalar_t>;
    const scalar_t* data = x.data_ptr<scalar_t>();
    sum_over_samples(batch, tokens, width, out.data_ptr<real>(),
                     [=](int64_t sample, int64_t t, int64_t j) {
                       return static_cast<real>(data[sample * batch_stride + t * token_stride + j]);
                     });
  });
}

}  // namespace veil
