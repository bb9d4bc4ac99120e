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

// Gradients of the samples' summed loss, by parameter, in fp64 on CPU. `changed`: by how much of
// itself each number of a parameter is changed first, up or down at random.
NamedTensors autograd_gradients(const LanguageGolden& golden, DType dtype, Device device,
                                double changed = 0);
NamedTensors autograd_gradients(const DiffusionGolden& golden, DType dtype, Device device);

// How far fp32 may be off the golden's gradients, by relative_to_layer. 1e-5 is what rounding costs
// where nothing amplifies it. Large scores of attention do: how much is seen in fp64, by changing
// every parameter by 2^-24 of itself. An implementation rounds some ten results per block, there and
// back, each by about as much, and their errors add up at random.
double fp32_tolerance(const LanguageGolden& golden);

}  // namespace veil
