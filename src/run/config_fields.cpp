#include "run/config_fields.h"

#include <algorithm>

namespace veil {
namespace {

template <typename T>
nlohmann::json stored(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return name_of(value);
  } else {
    return value;
  }
}
template <typename T>
nlohmann::json stored(const std::optional<T>& value) {
  return value ? stored(*value) : nlohmann::json();
}
template <typename T>
nlohmann::json stored(const std::vector<T>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const T& value : values) list.push_back(stored(value));
  return list;
}

}  // namespace

std::string stored_key(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return field;
}

nlohmann::json settings_json(const RunConfig& config) {
  nlohmann::json json = nlohmann::json::object();
  visit_fields(config, [&](const char* field, const auto& value) {
    json[stored_key(field)] = stored(value);
  });
  return json;
}

const std::vector<std::string>& idle_fields() {
  static const std::vector<std::string> names = {
      // where files are
      "data", "hub_cache", "output_dir", "resume", "export", "secret_file", "prices_file",
      // what is reported, kept or refused
      "evaluate_every", "evaluation_samples", "checkpoint_every", "keep_checkpoints",
      "profile_step", "held_out_required", "overwrite", "merge", "ignore_memory",
      "allow_insecure_noise",
      // what only a measurement reads
      "warmup", "iterations", "profile"};
  return names;
}

nlohmann::json deciding_json(const RunConfig& config) {
  nlohmann::json json = settings_json(config);
  for (const std::string& field : idle_fields()) json.erase(stored_key(field));
  return json;
}

}  // namespace veil
