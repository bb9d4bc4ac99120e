// Models by name, without a download.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/config.h"

namespace veil {

std::optional<LanguageConfig> preset_config(const std::string& name);  // in any case
const std::vector<std::string>& preset_names();
// "meta-llama/Llama-3.1-8B-Instruct" is the shape of "llama3.1-8b"; nothing for what has no preset.
std::optional<std::string> preset_of_hub_id(const std::string& id);

}  // namespace veil
