#include "kernels/test_operations.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "kernels/tensor_arguments.h"

namespace veil {

double rounding_of(DType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-14;
    case at::kFloat:
      return 5e-7;
    case at::kHalf:
      return 1e-3;
    default:
      return 4.1e-3;
  }
}

Tensor random(c10::IntArrayRef shape, DType dtype) {
  return at::randn(shape, at::kDouble).to(dtype);
}

// A GPU may land on the other side of a rounding: a whole unit in the last place.
Tolerance stored(DType dtype) {
  switch (dtype) {
    case at::kDouble:
      return {1e-12, 1e-12};
    case at::kFloat:
      return {5e-6, 5e-6};
    case at::kHalf:
      return {1e-3, 2e-3};
    default:
      return {4.1e-3, 8e-3};
  }
}

Tolerance summed(DType dtype) {
  return dtype == at::kDouble ? Tolerance{1e-12, 1e-12} : Tolerance{1e-5, 1e-5};
}

Tensor leaf(const Tensor& tensor) {
  return tensor.detach().clone().requires_grad_(true);
}
Tensor real_like(const Tensor& tensor, c10::IntArrayRef shape) {
  return at::full(shape, 77, tensor.options().dtype(real_of(tensor.scalar_type())));
}

const char* name_of(Overlap overlap) {
  return overlap == Overlap::none    ? "apart"
         : overlap == Overlap::first ? "on the first"
                                     : "on the second";
}

Tensor knobs_on(Device device, const UpdateKnobs& knobs) {
  return at::tensor({knobs.learning_rate, knobs.scale, knobs.bias_correction1,
                     knobs.bias_correction2, knobs.step},
                    at::kDouble)
      .to(device);
}

}  // namespace veil
