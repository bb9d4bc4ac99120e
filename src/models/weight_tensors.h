// Weights read into and written from LibTorch's tensors.
#pragma once

#include "models/weights.h"
#include "tensor/device.h"

namespace veil {

StoredType stored_type(DType dtype);  // VEIL_CHECK for types that are not stored

// Fills `out`, contiguous on CPU, with the elements that begin at `first`, in out's own type. `out`
// may be a piece of a larger buffer.
void read_weight(const Weights& weights, const StoredTensor& tensor, int64_t first, Tensor& out);

// Writes the values that the tensor holds at the moment of writing, as `dtype`, under the tensor's
// shape. A tensor on a GPU is copied piece by piece.
TensorSource tensor_source(const std::string& name, const Tensor& tensor, StoredType dtype);

}  // namespace veil
