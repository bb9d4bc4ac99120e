#include "cli/diffusion_source.h"

#include <filesystem>

#include "base/files.h"

namespace veil {

std::optional<DiffusionSource> find_diffusion_model(const std::string& name) {
  if (const std::optional<DitConfig> preset = dit_preset(name)) return DiffusionSource{*preset, ""};
  const std::string path = join_path(name, "config.json");
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  const auto json = nlohmann::ordered_json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model_type") || !json.at("model_type").is_string() ||
      json.at("model_type").get<std::string>() != "dit")
    return {};
  return DiffusionSource{parse_dit_config(json, path), name};
}

}  // namespace veil
