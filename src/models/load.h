// A published checkpoint as a model's initial parameters.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/shape.h"

namespace veil {

struct InitialWeights {
  // Fills `out` with a parameter's elements from `first` on, in out's type and on its device; false
  // where the parameter starts by its own rule. Reads those elements only.
  std::function<bool(ParamId, int64_t first, const Tensor& out)> fill;
  // what a person should know: a head dropped, a head that starts at random
  std::vector<std::string> notices;
  int64_t tensors = 0;              // parameters that are read
  std::vector<std::string> random;  // names of those that start at random: a new head
};

// `path`: a folder or file as Weights takes it. Adapters are not in it and start by their own rules
// (models/peft.h reads them). Every other tensor must fit the model, or it is a
// UserError that names it, with one exception: a causal-LM checkpoint opened for sequence
// classification drops its head and starts `score` at random. A tied model ignores a head stored
// next to its table.
InitialWeights load_weights(const std::string& path, const LanguageConfig& config,
                            const std::vector<ParamShape>& params);
// The same for a model whose names are the file's own.
InitialWeights load_weights(const std::string& path, const std::vector<ParamShape>& params);

}  // namespace veil
