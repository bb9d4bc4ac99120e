// What a diffusion model learns from: clean images with noise of a random timestep, and the noise.
#pragma once

#include "models/dit.h"
#include "nn/tape.h"

namespace veil {

struct NoisedOptions {
  uint64_t seed = 0;
  // part of the samples whose class is hidden, so that the model also learns without
  double label_drop = 0.1;
};

// pixels [rows, channels, size, size] fp32 in [-1, 1]. Timestep, noise and hidden label of a row
// depend on (seed, step, sample) alone, whatever rank or place in the batch it has; a sample must
// come once per step; data::kNoSample may come often, and is noise-free. `sample_count`: of the whole
// data set. Labels must be below config.classes.
Batch noised_batch(const DitConfig& config, const NoiseSchedule& schedule,
                   const std::vector<float>& pixels, const std::vector<int64_t>& samples,
                   const std::vector<int64_t>& labels, int64_t sample_count, int64_t step,
                   const NoisedOptions& options, DType compute, Device device);

}  // namespace veil
