// Clipped sum, noise and optimizer in one pass: the noise exists in registers only.
#pragma once

#include <vector>

#include "kernels/noise.h"
#include "kernels/update_rule.h"
#include "tensor/device.h"

namespace veil {

// A range of one parameter.
struct NoisyUpdate {
  Tensor param;  // [n] fp32, fp64 or bf16
  // [n] optimizer state, fp64 if param is, otherwise fp32 or bf16; undefined if the rule has
  // none
  Tensor m, v;
  // [n]: the clipped sum, in fp32 (fp64). Or, with coefficients, [samples, n] of any type, rows
  // contiguous: clipped here
  Tensor grad;
  Tensor coefficients;  // fp64 [samples], or undefined
  // On a CPU so many samples are summed, and then such sums, as if ranks had made them: all at once
  // if 0. A GPU adds sample by sample.
  int64_t together = 0;
  int64_t first_index = 0;    // model-wide, of param[0]: keys the rounding to bf16
  uint32_t parameter = 0;     // keys the noise, with
  int64_t first_element = 0;  // of the whole parameter, at param[0]
};

// param = rule(param, (sum + deviation z) scale): knobs begins with an UpdateKnobs, noise_knobs
// with a NoiseKnobs; both fp64 on param's device. Samples whose coefficient is 0 are passed over.
void noisy_update(const NoisyUpdate& of, const Tensor& knobs, const UpdateRule& rule,
                  const Tensor& noise_knobs, const NoiseSource& source);
// Ranges that do not overlap, each updated as if it were alone. A GPU updates those of the same
// types, samples and stride in one launch.
void noisy_update(const std::vector<NoisyUpdate>& ranges, const Tensor& knobs,
                  const UpdateRule& rule, const Tensor& noise_knobs, const NoiseSource& source);

}  // namespace veil
