#include "run/model_source.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "data/hub.h"
#include "models/export.h"
#include "models/family.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLinearStack = "linear-stack";

// The hub ids whose folders are in the cache: models--org--name.
std::vector<std::string> fetched_ids(const std::string& hub_cache) {
  std::vector<std::string> ids;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(hub_cache, ignored)) {
    const std::string folder = entry.path().filename().string();
    const size_t between = folder.find("--", 8);
    if (folder.starts_with("models--") && between != std::string::npos)
      ids.push_back(folder.substr(8, between - 8) + "/" + folder.substr(between + 2));
  }
  return ids;
}

}  // namespace

bool ModelSource::has_weights() const {
  return !from_scratch && !folder.empty() &&
         (fs::exists(fs::path(folder) / "model.safetensors") ||
          fs::exists(fs::path(folder) / "model.safetensors.index.json"));
}

bool is_fetched(const std::string& name, const std::string& hub_cache) {
  return fs::is_directory(name) ||
         (name.find('/') != std::string::npos && resolve_model_folder(name, hub_cache));
}

ModelSource find_model(const std::string& name, const std::string& hub_cache) {
  ModelSource source;
  source.name = name;
  if (canonical(name) == kLinearStack || canonical(name) == "linear") return source;
  source.config = preset_config(name);
  source.diffusion = dit_preset(name);
  if (source.config || source.diffusion) return source;
  if (fs::is_directory(name)) {
    const auto has = [&](const char* file) { return fs::exists(fs::path(name) / file); };
    if (!has("config.json") && has("adapter_config.json"))
      field_error("model",
                  "{}: the folder holds adapters; pass `model` with the model they belong to and "
                  "`adapter` {}",
                  name, name);
    if (!has("config.json")) field_error("model", "{}: the folder has no config.json", name);
    source.folder = name;
  } else if (const auto found = resolve_model_folder(name, hub_cache)) {
    source.folder = *found;
  } else {
    std::vector<std::string> known = preset_names();
    known.insert(known.end(), dit_preset_names().begin(), dit_preset_names().end());
    known.push_back(kLinearStack);
    std::vector<std::string> near = known;
    for (const std::string& id : fetched_ids(hub_cache)) near.push_back(id);
    const std::string meant = nearest(name, near);
    const bool hub_id = name.find('/') != std::string::npos;
    field_error("model", "{}: no such preset, folder or fetched model; {}{}presets are {}", name,
                meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                hub_id ? fmt::format("`veil fetch {}` downloads one; ", name) : "",
                join(known, ", "));
  }
  const std::string path = join_path(source.folder, "config.json");
  if (const auto json = try_json<nlohmann::ordered_json>(read_file(path));
      json.is_object() && is_dit_config(json)) {
    source.diffusion = parse_dit_config(json, path);
  } else {
    source.config = read_config(path);
  }
  return source;
}

InitialWeights initial_weights(const ModelSource& source, const Model& model, bool check) {
  if (check && source.has_weights()) check_exported_weights(source.folder);
  if (check && source.adapter) check_exported_weights(source.adapter->folder);
  InitialWeights initial;
  if (source.has_weights())
    initial = source.config ? load_weights(source.folder, *source.config, model.params)
                            : load_weights(source.folder, model.params);
  return source.adapter ? with_adapter(std::move(initial), *source.adapter, model.params) : initial;
}

void require_weights(const ModelSource& source, bool trains) {
  if (source.from_scratch || source.has_weights()) return;
  const char* const random = trains ? ", or pass `from_scratch` to start with random weights" : "";
  if (source.folder.empty())
    field_error("model",
                "{}: a preset is a shape without weights; pass a folder with model.safetensors or "
                "a model that `veil fetch` downloaded{}",
                source.name, random);
  const bool pickled = fs::exists(fs::path(source.folder) / "pytorch_model.bin") ||
                       fs::exists(fs::path(source.folder) / "pytorch_model.bin.index.json");
  if (pickled)
    field_error("model",
                "{}: the folder has pytorch_model.bin, which Veil does not read; convert it with "
                "transformers' save_pretrained(safe_serialization=True){}",
                source.name, random);
  field_error("model", "{}: the folder has no weights (model.safetensors); add them{}", source.name,
              random);
}

std::string weights_text(const ModelSource& source, const InitialWeights& initial) {
  const char* const random =
      source.from_scratch ? "random (--from-scratch)" : "random (measured only)";
  if (!source.has_weights() && !source.adapter) return random;
  std::vector<std::string> folders;
  if (source.has_weights()) folders.push_back(source.folder);
  if (source.adapter) folders.push_back(source.adapter->folder);
  return fmt::format("{} from {}{}{}", quantity(initial.tensors, "tensor"), join(folders, " and "),
                     source.has_weights() ? "" : fmt::format("; the others are {}", random),
                     initial.random.empty() ? ""
                                            : fmt::format("; {} is new and starts at random",
                                                          join(initial.random, ", ")));
}

}  // namespace veil
