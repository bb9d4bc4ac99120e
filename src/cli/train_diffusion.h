// veil train for a diffusion transformer: images in, noise out.
#pragma once

#include <string>
#include <vector>

namespace veil {

// Whether --model names one: a preset, or a folder whose config.json says so.
bool names_diffusion_model(const std::vector<std::string>& arguments);
int run_train_diffusion(const std::vector<std::string>& arguments);

}  // namespace veil
