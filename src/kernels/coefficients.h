// From squared norms to clip coefficients, on the device, so that a captured step continues without
// the host.
#pragma once

#include "kernels/clip_coefficient.h"
#include "tensor/device.h"

namespace veil {

// squared fp64 [params, samples]; layers int32 [params]: which layer a parameter is clipped with;
// clip_norms fp64 [all layers]; counted bytes [samples] or undefined (all count). Writes
// coefficients fp64 [all layers, samples] for the layers in [first_layer, end_layer): 0 for a
// sample that does not count or whose squared norm, of any parameter so far, is not finite. With
// `last` adds to `tally`, fp64 [kClipTally], a ClipTally.
struct CoefficientsOf {
  Tensor squared, layers, clip_norms, counted;
  int first_layer = 0, end_layer = 1;
  ClipFunction function = ClipFunction::abadi;
  bool last = true;
};
void clip_coefficients(const CoefficientsOf& of, const Tensor& coefficients, const Tensor& tally);

}  // namespace veil
