// From tensors to what a kernel takes.
#pragma once

#include "base/error.h"
#include "kernels/element.h"
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

}  // namespace veil
