// The adapters of a model that was built with some.
#pragma once

#include <string>
#include <vector>

#include "models/shape.h"

namespace veil {

// The names of the projections that have adapters, in the model's order.
std::vector<std::string> adapted_modules(const Model& model);

// Of a model that was built with adapters: freezes all but these and the parameters whose names
// match one of `also` (as in a shell). UserError for a target or a pattern that matches nothing.
void train_adapters(Model& model, const std::vector<std::string>& also);

}  // namespace veil
