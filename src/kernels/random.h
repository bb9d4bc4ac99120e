// Random numbers by element index: element i of a fill depends on (seed, domain, first_index + i)
// and on nothing else, so that ranks, shards and devices agree.
#pragma once

#include "tensor/device.h"

namespace veil {

enum class RandomDomain : uint32_t {
  parameters = 1,
  inputs = 2,
  targets = 3,
  rounding = 4,
  simulated = 5,
  conditions = 6
};

// Uniform in [-half_width, half_width).
void fill_uniform(const Tensor& out, double half_width, uint64_t seed, RandomDomain domain,
                  int64_t first_index);
// Normal with mean 0: Box-Muller in fp32, from 24-bit uniforms. For data and initial values;
// privacy noise is made elsewhere.
void fill_normal(const Tensor& out, double deviation, uint64_t seed, RandomDomain domain,
                 int64_t first_index);
// Whole numbers in [0, below), int64; made on the host and copied.
void fill_whole(const Tensor& out, int64_t below, uint64_t seed, RandomDomain domain,
                int64_t first_index);

}  // namespace veil
