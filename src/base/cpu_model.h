// The processor's name, and what tells it from others of that name.
#pragma once

#include <string>

namespace veil {

std::string cpu_model();
// What it can do: family, model and stepping, instruction sets, and the cache's size, of the first
// processor; "" if the system does not tell.
std::string cpu_features();

}  // namespace veil
