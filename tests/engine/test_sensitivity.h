// How far one sample moves the clipped sum; on any ranks.
#pragma once

#include "engine/test_run.h"

namespace veil {

// Six samples over `world` ranks in micro-batches of one or more: random data sets, models, plans,
// rules and types. The number of ranks divides six samples only with padding.
std::vector<TestCase> sensitivity_cases(int world);
// What a mechanism states for this compute type: rounding may add so much to a clipped sample's
// norm, relative to C.
double stated_slack(DType compute);

struct SensitivityFound {
  double moved = 0;        // the largest distance that leaving one sample out makes
  bool exchanged = false;  // ranks sent each other kept gradients
};
// Leaves each of a rank's samples out in turn, in its place. Every rank must call it.
SensitivityFound one_sample_less(const TestCase& test, Ranks ranks);

// in fp64, over all parameters
double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace veil
