// The files next to a model's weights that belong to it: its tokenizer, chat template and generation
// settings. And the type of its weights. An export gives all of it back.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/stored_type.h"

namespace veil {

// Whether a file of this name is the tokenizer's, a chat template or the generation settings.
bool is_companion_file(const std::string& name);
// Those of a folder, by name, with their contents; sorted.
std::vector<std::pair<std::string, std::string>> companion_files(const std::string& folder);

// The type that most numbers of a folder's weights have; nothing if there are no weights or none
// of a type that Veil writes.
std::optional<StoredType> stored_weights_type(const std::string& folder);
// As config.json spells it: "float32", "bfloat16", "float16", "float64".
std::string config_dtype(StoredType type);

}  // namespace veil
