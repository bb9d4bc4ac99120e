#include "models/weight_tensors.h"

#include <algorithm>

#include "base/units.h"

namespace veil {

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case at::kDouble:
      return StoredType::f64;
    case at::kFloat:
      return StoredType::f32;
    case at::kHalf:
      return StoredType::f16;
    case at::kBFloat16:
      return StoredType::bf16;
    case at::kLong:
      return StoredType::i64;
    case at::kInt:
      return StoredType::i32;
    case at::kShort:
      return StoredType::i16;
    case at::kChar:
      return StoredType::i8;
    case at::kByte:
      return StoredType::u8;
    case at::kBool:
      return StoredType::boolean;
    default:
      VEIL_CHECK(false, "tensors of type {} are not stored", dtype_name(dtype));
  }
}

void read_weight(const Weights& weights, const StoredTensor& tensor, int64_t first, Tensor& out) {
  VEIL_CHECK(out.is_cpu() && out.is_contiguous(),
             "weights are read into contiguous memory of the host");
  weights.read(tensor, first, out.numel(), out.data_ptr(), stored_type(out.scalar_type()));
}

TensorSource tensor_source(const std::string& name, const Tensor& tensor, StoredType dtype) {
  VEIL_CHECK(tensor.is_contiguous(), "{} is not contiguous", name);
  const auto produce = [tensor, dtype](const AppendBytes& append) {
    const Tensor flat = tensor.view(-1);
    const StoredType held = stored_type(tensor.scalar_type());
    const int64_t most = 16 * kMiB / (stored_bits(dtype) / 8);
    std::string bytes;
    for (int64_t first = 0; first < flat.numel(); first += most) {
      const Tensor piece = flat.narrow(0, first, std::min(most, flat.numel() - first)).cpu();
      const auto* data = static_cast<const char*>(piece.data_ptr());
      const auto length = static_cast<size_t>(piece.numel() * (stored_bits(dtype) / 8));
      if (held != dtype) {
        bytes.resize(length);
        convert_elements(data, held, bytes.data(), dtype, piece.numel());
        data = bytes.data();
      }
      append({data, length});
    }
  };
  return {.name = name, .dtype = dtype, .dims = tensor.sizes().vec(), .produce = produce};
}

}  // namespace veil
