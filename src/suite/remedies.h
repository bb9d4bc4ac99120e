// What a person can do where memory runs out.
#pragma once

#include <string>
#include <vector>

#include "suite/experiment.h"

namespace veil {

// Options that take less memory than these, best first.
std::vector<std::string> remedies(const ExperimentOptions& options, int world, bool on_gpu);

}  // namespace veil
