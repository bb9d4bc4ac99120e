#include "tensor/device.h"

#include <ATen/ops/empty.h>

#include "base/error.h"

namespace veil {

Device cpu_device() {
  return Device(c10::kCPU);
}

Tensor empty_tensor(c10::IntArrayRef shape, DType dtype, Device device, bool pinned) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(device).pinned_memory(
                              pinned && gpu_count() > 0));
}

DType sum_dtype(DType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

int64_t dtype_bytes(DType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

DType parse_dtype(const std::string& name) {
  if (name == "fp32" || name == "float32") return at::kFloat;
  if (name == "bf16" || name == "bfloat16") return at::kBFloat16;
  if (name == "fp64" || name == "float64") return at::kDouble;
  if (name == "fp16" || name == "float16") return at::kHalf;
  user_error("unknown type '{}': allowed are fp32, bf16, fp16, fp64", name);
}

std::string dtype_name(DType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kDouble:
      return "fp64";
    case at::kHalf:
      return "fp16";
    default:
      return c10::toString(dtype);
  }
}

}  // namespace veil
