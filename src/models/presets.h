// Models by name, without a download.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/config.h"

namespace veil {

std::optional<LanguageConfig> preset_config(const std::string& name);  // in any case
const std::vector<std::string>& preset_names();

}  // namespace veil
