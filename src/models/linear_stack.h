// The workload of PyTorch's FSDP tutorial: a stack of equal linear layers with ReLU, trained to a
// random target.
#pragma once

#include "models/shape.h"

namespace veil {

Model linear_stack(int64_t width, int64_t layers);

}  // namespace veil
