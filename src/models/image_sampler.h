// Images drawn from a diffusion model: noise is taken away step by step.
#pragma once

#include <functional>

#include "base/names.h"
#include "models/dit.h"

namespace veil {

enum class SamplerKind { ddpm, ddim };  // with fresh noise at each step; without
const NameTable<SamplerKind>& names(SamplerKind);

struct SamplerOptions {
  SamplerKind kind = SamplerKind::ddim;
  int64_t steps = 50;   // of the schedule's, evenly chosen
  double guidance = 1;  // e = without + guidance (with - without) the class; 1: the class as it is
  uint64_t seed = 0;
  std::function<void(int64_t done)> on_step;
};

// UserError for a label that the model does not have, or a number of steps. A label may be
// config.classes: no class.
void check_sampling(const DitConfig& config, const std::vector<int64_t>& labels,
                    const SamplerOptions& options);

// [labels, channels, size, size], about in [-1, 1], on the parameters' device. Image i depends on
// (seed, i) and its label. UserError as check_sampling's.
Tensor sample_images(const Model& model, const DitConfig& config, const Params& params,
                     DType compute, Device device, const std::vector<int64_t>& labels,
                     const SamplerOptions& options);

}  // namespace veil
