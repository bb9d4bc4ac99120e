#include "data/hub.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace veil {

namespace fs = std::filesystem;

std::string hub_home(const HubVariables& variables) {
  if (!variables.hf_home.empty()) return variables.hf_home;
  if (!variables.xdg_cache_home.empty()) return join_path(variables.xdg_cache_home, "huggingface");
  return join_path(variables.home, ".cache/huggingface");
}

std::string hub_cache_root(const HubVariables& variables) {
  return variables.hf_hub_cache.empty() ? join_path(hub_home(variables), "hub")
                                        : variables.hf_hub_cache;
}

std::string hub_token_file(const HubVariables& variables) {
  return variables.hf_token_path.empty() ? join_path(hub_home(variables), "token")
                                         : variables.hf_token_path;
}

bool is_hub_id(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  if (parts.size() > 2 || name.size() > 96 || name.find("--") != std::string::npos ||
      name.find("..") != std::string::npos || name.ends_with(".git")) {
    return false;
  }
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    const auto allowed = [](char letter) {
      const auto byte = static_cast<unsigned char>(letter);
      return byte < 0x80 && (std::isalnum(byte) || letter == '-' || letter == '.' || letter == '_');
    };
    const auto edge = [](char letter) { return letter == '-' || letter == '.'; };
    return !part.empty() && std::all_of(part.begin(), part.end(), allowed) && !edge(part.front()) &&
           !edge(part.back());
  });
}

void check_hub_id(const std::string& name) {
  if (is_hub_id(name)) return;
  user_error("model '{}': allowed is a hub's name, as in meta-llama/Llama-3.1-8B-Instruct",
             printable(name));
}

bool is_safe_path(const std::string& path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const char letter : path) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F || letter == '\\') return false;
  }
  const std::vector<std::string> parts = split(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.empty() || part == "." || part == ".." || part.size() > 255;
  });
}

std::string hub_model_folder(const std::string& cache_root, const std::string& id) {
  return join_path(cache_root, "models--" + join(split(id, '/'), "--"));
}

std::optional<std::string> resolve_model_folder(const std::string& name,
                                                const std::string& cache_root,
                                                const std::string& revision) {
  std::error_code ignored;
  if (fs::is_regular_file(join_path(name, "config.json"), ignored)) return name;
  if (!is_hub_id(name) || !is_safe_path(revision)) return {};
  const std::string folder = hub_model_folder(cache_root, name);
  std::string commit = revision;
  const std::string ref = join_path(folder, "refs/" + revision);
  if (fs::is_regular_file(ref, ignored)) {
    commit = read_file(ref);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())))
      commit.pop_back();
  }
  if (!is_safe_path(commit)) return {};
  const std::string snapshot = join_path(folder, "snapshots/" + commit);
  if (!fs::is_regular_file(join_path(snapshot, "config.json"), ignored)) return {};
  return snapshot;
}

void model_not_found(const std::string& name, const std::string& cache_root) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored))
    field_error("model", "{}: this folder has no config.json", printable(name));
  if (!is_hub_id(name)) {
    field_error("model",
                "{}: allowed are a preset, a folder with config.json and a hub's name, as in "
                "org/name",
                printable(name));
  }
  field_error(
      "model",
      "{}: no preset, no folder with config.json, and not in the cache '{}': `veil fetch {}` "
      "downloads it",
      name, cache_root, name);
}

std::vector<std::string> files_of_a_model(const std::vector<std::string>& files) {
  static const std::vector<std::string> wanted = {"config.json",
                                                  "generation_config.json",
                                                  "tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "vocab.txt",
                                                  "tokenizer.model",
                                                  "chat_template.json",
                                                  "chat_template.jinja"};
  const auto contains = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  const bool usual =
      contains(files, "model.safetensors") || contains(files, "model.safetensors.index.json");
  std::vector<std::string> result;
  for (const std::string& file : files) {
    const bool weights =
        file.find('/') == std::string::npos &&
        (file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json")) &&
        (!usual || file == "model.safetensors" || file == "model.safetensors.index.json" ||
         matches_pattern(file, "model-*-of-*.safetensors"));
    if (weights || contains(wanted, file)) result.push_back(file);
  }
  return result;
}

}  // namespace veil
