#include "cli/hub_environment.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/files.h"

namespace veil {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  size_t first = 0;
  while (first < text.size() && std::isspace(static_cast<unsigned char>(text[first]))) ++first;
  return text.substr(first);
}

}  // namespace

std::string cache_root_from_environment() {
  const HubVariables variables = hub_variables_from_environment();
  if (!variables.xdg_cache_home.empty()) return join_path(variables.xdg_cache_home, "veil");
  return join_path(join_path(variables.home, ".cache"), "veil");
}

std::string prices_file_from_environment() {
  return join_path(cache_root_from_environment(), "prices.json");
}

HubVariables hub_variables_from_environment() {
  return {.hf_home = variable("HF_HOME"),
          .hf_hub_cache = variable("HF_HUB_CACHE"),
          .hf_token_path = variable("HF_TOKEN_PATH"),
          .xdg_cache_home = variable("XDG_CACHE_HOME"),
          .home = variable("HOME")};
}

std::string model_folder_from_environment(const std::string& name) {
  const std::string cache_root = hub_cache_root(hub_variables_from_environment());
  if (const auto folder = resolve_model_folder(name, cache_root)) return *folder;
  model_not_found(name, cache_root);
}

std::string hub_token_from_environment() {
  const std::string given = trimmed(variable("HF_TOKEN"));
  if (!given.empty()) return given;
  const std::string file = hub_token_file(hub_variables_from_environment());
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) ? trimmed(read_file(file)) : "";
}

std::string authorities_from_environment() {
  return variable("SSL_CERT_FILE");
}

std::string hub_endpoint_from_environment() {
  const std::string given = trimmed(variable("HF_ENDPOINT"));
  return given.empty() ? "https://huggingface.co" : given;
}

}  // namespace veil
