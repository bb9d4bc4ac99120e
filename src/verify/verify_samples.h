// Samples on which clipping goes wrong if it can: repeated tokens, padding, ignored targets, and
// one that must not count.
#pragma once

#include <vector>

#include "models/shape.h"
#include "run/model_source.h"

namespace veil {

struct VerifySamples {
  Batch batch;  // on CPU; floating-point data in `compute`, with values that fp64 shares
  std::vector<bool> padded;  // [samples]: ends in padding or has targets that are ignored
};
// The same first samples for every count.
VerifySamples verify_samples(const Model& model, const ModelSource& source, int64_t count,
                             DType compute, uint64_t seed);

}  // namespace veil
