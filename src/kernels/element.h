// Element types as kernels see them, without LibTorch.
#pragma once

namespace veil {

enum class Element { fp32, fp64, bf16, fp16 };

}  // namespace veil
