// How long an experiment will take, roughly and without running it.
#pragma once

#include "suite/experiment.h"

namespace veil {

// Its steps by the roofline and the clip plan's price, and its start by the size of the model. Communication is left out.
double estimated_seconds(const ExperimentOptions& options);

}  // namespace veil
