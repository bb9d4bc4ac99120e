// How clipping is computed: which rule finds each parameter's norms, and in how many passes. It
// changes a step's time and memory, never its result.
#pragma once

#include <string>
#include <vector>

#include "kernels/noise.h"
#include "models/shape.h"
#include "privacy/clip.h"
#include "privacy/norm_sink.h"

namespace veil::privacy {

// keep       per-sample gradients are made once, normed as they stand, and summed when the
//            coefficients are known
// book       norms by a rule; inputs and output gradients are held until the coefficients are
//            known, then the weight gradients are made
// two_pass   norms by a rule in a first backward, the clipped sum in a second one
// per_layer  book, layer by layer: a layer's coefficients need its own norms only
//            (ClipFunction::per_layer)
enum class PassKind { keep, book, two_pass, per_layer };
const NameTable<PassKind>& names(PassKind);

struct ClipMethod {
  PassKind pass = PassKind::two_pass;
  std::vector<NormRule> rules = {};  // by parameter; keep asks for none
  int64_t tile = 256;                // ghost: tokens in a tile's side. flash: rows of the weight
  bool layers = false;               // norms and coefficients by layer (ClipFunction::per_layer)
  // keep, with several micro-batches: the gradients of so many are kept beside each other and summed
  // at once, so that the sum is read and written less often
  int combine_every = 1;
};
// "keep", or "keep, 4 micro-batches at once".
std::string plan_name(PassKind pass, int combine_every);

// What is clipped together under ClipFunction::per_layer: each block (the loss counts as one),
// those that share a parameter as one.
struct ClipLayers {
  std::vector<int> of_block;  // the last entry is the loss's
  std::vector<int> of_param;
  int count = 1;
};
ClipLayers clip_layers(const ModelShape& shape, bool by_layer);

// One rule for every parameter.
ClipMethod uniform_method(const ModelShape& shape, PassKind pass, NormRule rule);

// A step's privacy as the executor needs it; Mechanism is where it comes from.
struct PrivateStep {
  ClipFunction clip = ClipFunction::abadi;
  std::vector<double> clip_norms = {1};  // C, or one for each layer
  // of C (of sqrt(sum C_l^2)), slack included: Mechanism::noise_deviation(1)
  double noise_multiplier = 0;
  double expected_batch = 1;  // E
  NoiseSource noise = {};
};

}  // namespace veil::privacy
