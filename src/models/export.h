// A model's folder as transformers reads it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/safetensors.h"

namespace veil {

struct ExportOptions {
  // above this the weights are cut into several files with an index
  int64_t shard_bytes = 5'000'000'000;
  bool replace = false;  // whether a folder that is there and not empty makes way
};

// The folder appears whole or not at all: it is made under another name next to its place and then
// renamed. `files` are whole small files by name, config.json among them. Tensors are written in
// the order given (see write_safetensors), as model.safetensors or as
// model-00001-of-0000N.safetensors with model.safetensors.index.json. UserError where the folder is
// in the way or cannot be written.
void export_model(const std::string& folder,
                  const std::vector<std::pair<std::string, std::string>>& files,
                  const std::vector<TensorSource>& tensors, const ExportOptions& options = {});

}  // namespace veil
