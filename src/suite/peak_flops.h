// What a GPU can do at best, from its vendor's data sheet: the denominator of MFU.
#pragma once

#include <string>

#include "tensor/device.h"

namespace veil {

// Dense TFLOP/s of products in this type; 0 where the GPU is not in the table.
double peak_tflops_of(const std::string& gpu_name, DType compute);

}  // namespace veil
