// The cache that Hugging Face's own tools keep, and how a name becomes a folder in it:
//
//   <cache>/models--<org>--<name>/blobs/<checksum>              the files themselves
//                                 refs/<revision>               the commit that a branch or tag
//                                                               stands for
//                                 snapshots/<commit>/<file>     links to ../../blobs/<checksum>
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

// What the environment says; "" for what is not set. Read in src/cli only.
struct HubVariables {
  std::string hf_home, hf_hub_cache, hf_token_path, xdg_cache_home, home;
};
// HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface
std::string hub_home(const HubVariables& variables);
std::string hub_cache_root(const HubVariables& variables);  // HF_HUB_CACHE, else hub in the home
// HF_TOKEN_PATH, else token in the home: what the hub's own login leaves
std::string hub_token_file(const HubVariables& variables);

// "name" or "org/name" of letters, digits and -._ as a hub allows them.
bool is_hub_id(const std::string& name);
// UserError that says what is allowed.
void check_hub_id(const std::string& name);

// Whether a name from a server or a person may become a path below a folder: relative, no empty,
// "." or ".." part, no control character.
bool is_safe_path(const std::string& path);

std::string hub_model_folder(const std::string& cache_root, const std::string& id);

// A model's folder for `--model NAME`: NAME itself if it is a folder with config.json, else the
// snapshot of the hub's model of that name in the cache. Nothing if neither is there. `revision`
// is a branch, a tag or a commit of the hub's model.
std::optional<std::string> resolve_model_folder(const std::string& name,
                                                const std::string& cache_root,
                                                const std::string& revision = "main");
// The UserError for a name that was resolved to nothing.
[[noreturn]] void model_not_found(const std::string& name, const std::string& cache_root);

// Which of a repository's files a model needs: its configuration, its tokenizer, its safetensors,
// all at the top. Where model.safetensors or its index is there, other safetensors (a second layout
// of the same weights) are left out.
std::vector<std::string> files_of_a_model(const std::vector<std::string>& files);

}  // namespace veil
