// The golden models written once more as plain LibTorch with autograd, the way PyTorch users write
// them: norms, softmax and the loss in fp32, everything else in the parameters' type. An oracle for
// tests. In fp64 it must give the goldens' gradients; in bf16 it shows PyTorch's own error.
#pragma once

#include <map>
#include <string>

#include "models/test_diffusion_golden.h"
#include "models/test_language_golden.h"

namespace veil {

using NamedTensors = std::map<std::string, Tensor>;

// Gradients of the samples' summed loss, by parameter, in fp64 on CPU.
NamedTensors autograd_gradients(const LanguageGolden& golden, DType dtype, Device device);
NamedTensors autograd_gradients(const DiffusionGolden& golden, DType dtype, Device device);

}  // namespace veil
