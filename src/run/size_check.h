// Whether a step's sizes can be counted at all. Bytes and operations are whole numbers of 64 bits;
// beyond them an estimate would wrap around and call a step of 2^63 samples small.
#pragma once

#include "run/model_source.h"

namespace veil {

inline constexpr int64_t kMostBatch = int64_t{1} << 31;       // samples per rank and micro-batch
inline constexpr int64_t kMostTotalBatch = int64_t{1} << 40;  // over all ranks
inline constexpr int64_t kMostAccumulation = 1000000;

struct StepSizes {
  int64_t batch = 1;                    // samples of a rank and micro-batch
  int64_t seq_length = 1;               // of a language model
  int64_t stack_width = 1, layers = 1;  // of the linear stack
};

// UserError that names the field which takes the step's bytes or operations beyond 2^62. Computed in
// floating point from the model's numbers, before anything is built or allocated.
void check_sizes(const ModelSource& source, const StepSizes& sizes);

}  // namespace veil
