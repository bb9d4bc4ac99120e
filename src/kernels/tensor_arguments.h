// From tensors to what a kernel takes.
#pragma once

#include "base/error.h"
#include "kernels/launch.h"
#include "tensor/device.h"

namespace veil {

inline Element element_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::fp32;
    case at::kDouble:
      return Element::fp64;
    case at::kBFloat16:
      return Element::bf16;
    case at::kHalf:
      return Element::fp16;
    default:
      VEIL_CHECK(false, "no kernel for {}", c10::toString(tensor.scalar_type()));
  }
}

// The type that a kernel computes in, and that its sums have.
inline DType real_of(DType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Tensors that an operation may do without are undefined; kernels see null.
inline void* pointer_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

// Whether a kernel can take `tensor` for one of the given type and size, or do without it.
inline bool fits(const Tensor& tensor, DType dtype, int64_t numel) {
  return tensor.defined() && tensor.is_contiguous() && tensor.scalar_type() == dtype &&
         tensor.numel() == numel;
}
inline bool absent_or_fits(const Tensor& tensor, DType dtype, int64_t numel) {
  return !tensor.defined() || fits(tensor, dtype, numel);
}

// The struct of doubles that a tensor of knobs begins with; it is on the tensor's device.
template <typename Knobs>
const Knobs* knobs_at(const Tensor& knobs) {
  VEIL_CHECK(knobs.scalar_type() == at::kDouble && knobs.is_contiguous() &&
                 knobs.nbytes() >= sizeof(Knobs),
             "knobs of {} numbers", knobs.numel());
  return reinterpret_cast<const Knobs*>(knobs.data_ptr<double>());
}

}  // namespace veil
