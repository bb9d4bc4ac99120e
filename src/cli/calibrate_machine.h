// `veil doctor --calibrate`: what this machine takes for the work of a step, measured and kept.
#pragma once

#include <string>

namespace veil {

// `json`: a file for the observed rows as well; "": none, "-": stdout.
int calibrate_machine(const std::string& json);

}  // namespace veil
