// What --model names where that is a diffusion transformer.
#pragma once

#include <optional>
#include <string>

#include "models/dit.h"

namespace veil {

struct DiffusionSource {
  DitConfig config;
  std::string folder;  // "" for a preset
};
// Nothing where it is neither a preset nor a folder whose config.json says model_type dit.
std::optional<DiffusionSource> find_diffusion_model(const std::string& name);

}  // namespace veil
