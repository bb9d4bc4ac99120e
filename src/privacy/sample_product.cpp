#include "privacy/sample_product.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>

#include "kernels/tensor_arguments.h"

namespace veil::privacy {

Tensor samples_of(const Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(1) : x;
}

Tensor product_factor(const Tensor& x) {
  return x.is_cuda() || dtype_bytes(x.scalar_type()) >= 4 ? x : x.to(real_of(x.scalar_type()));
}

void product_into(Tensor& out, const Tensor& x, const Tensor& y, bool add) {
  const DType type = out.scalar_type();
  if (type == x.scalar_type()) {
    if (add) {
      at::baddbmm_out(out, out, x, y);
    } else {
      at::bmm_out(out, x, y);
    }
  } else if (add) {
    at::baddbmm_out(out, out, x, y, type);
  } else {
    at::bmm_out(out, x, y, type);
  }
}

}  // namespace veil::privacy
