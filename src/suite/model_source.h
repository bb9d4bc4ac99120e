// What `--model` names: a preset, a folder with config.json, or a hub id that was fetched.
#pragma once

#include <optional>
#include <string>

#include "models/config.h"
#include "models/dit.h"

namespace veil {

struct ModelSource {
  std::string name;  // as the user gave it
  std::optional<LanguageConfig> config;
  std::optional<DitConfig> diffusion;  // neither: the linear stack
  std::string folder;                  // with weights and perhaps a tokenizer; "" for a preset

  bool is_language_model() const { return config.has_value(); }
  bool has_weights() const;  // a folder may hold config.json alone: then the model starts at random
};

// `hub_cache` is the Hugging Face cache's folder ("" for none). UserError with the known names where nothing fits.
ModelSource find_model(const std::string& name, const std::string& hub_cache);
bool is_fetched(const std::string& name, const std::string& hub_cache);  // a folder, or a hub id in the cache

}  // namespace veil
