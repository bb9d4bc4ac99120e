// The files that options come from: TOML files and presets.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/options.h"

namespace veil {

void Options::read_file(const std::string& path) {
  std::ifstream stream(path);
  std::error_code ignored;
  if (!stream || std::filesystem::is_directory(path, ignored))
    user_error("--config {}: no such file, or it cannot be read", path);
  read_toml(stream, path, Source::file);
}

void Options::read_toml(std::istream& stream, const std::string& path, Source source) {
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  if (const size_t bad = find_invalid_utf8(text); bad != std::string::npos)
    user_error("{}:{}: byte {} is not UTF-8: allowed is a TOML file in UTF-8", path,
               1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(bad), '\n'),
               bad + 1);
  std::istringstream sound(text);
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(sound)) {
    if (item.name == "++" || item.name == "--" || !item.parents.empty()) {
      user_error("{}: [{}]: sections are not used; keys are option names, as in batch-size = 8",
                 path, item.parents.empty() ? item.name : join(item.parents, "."));
    }
    Setting* setting = find(item.name);
    const bool nested = setting && (setting->name == "config" ||
                                    (setting->name == "preset" && source == Source::preset_value));
    if (!setting || nested) {
      const std::string meant = nearest(item.name, option_names());
      user_error("{}: unknown key '{}': {}`veil {} --help` lists all options", path, item.name,
                 meant.empty() ? "" : fmt::format("did you mean {}? ", meant), command_);
    }
    if (!seen.insert(setting->name).second)
      user_error("{}: key '{}' is given twice", path, setting->name);
    for (const std::string& value : item.inputs) {
      // CLI11's reader ends a value at '#', even between quotes.
      if (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
        user_error("{}: {} = {}: the quotes do not close; a value cannot contain '#'", path,
                   item.name, setting->spec.secret ? kRedacted : value);
      }
    }
    if (source == Source::preset_value && !setting->refused.empty())
      user_error("{}: {}: {}", path, setting->name, setting->refused);
    if (is_replaced(*setting, source)) continue;
    // A preset lies beneath the file, which has been read.
    if (source == Source::file || setting->source.empty()) set(*setting, item.inputs, source);
  }
}

void Options::apply_preset() {
  namespace fs = std::filesystem;
  std::vector<std::string> known;
  for (const auto& [name, unused] : presets_) known.push_back(name);
  const auto found = presets_.find(preset_);
  std::string path = preset_.ends_with(".toml") ? preset_ : "";
  if (found == presets_.end() && path.empty() && preset_.find('/') == std::string::npos) {
    const std::string last = command_.substr(command_.find_last_of(' ') + 1);
    for (const std::string& folder : {"presets/" + last, std::string("presets")}) {
      std::error_code ignored;
      if (path.empty() && fs::is_regular_file(folder + "/" + preset_ + ".toml", ignored))
        path = folder + "/" + preset_ + ".toml";
    }
  }
  if (!path.empty()) {
    std::ifstream stream(path);
    std::error_code ignored;
    if (!stream || fs::is_directory(path, ignored))
      user_error("--preset {}: no such file, or it cannot be read", path);
    read_toml(stream, path, Source::preset_value);
    return;
  }
  if (found == presets_.end()) {
    user_error("--preset {}: allowed are {}, or a file NAME.toml{}", preset_, join(known, ", "),
               option_values::did_you_mean(preset_, known));
  }
  if (const auto text = preset_texts_.find(preset_); text != preset_texts_.end()) {
    std::istringstream stream(text->second);
    read_toml(stream, "preset " + preset_, Source::preset_value);
  }
  for (const auto& [name, value] : found->second) {
    Setting* setting = find(name);
    VEIL_CHECK(setting, "preset {} sets an unknown option {}", preset_, name);
    if (setting->source.empty() && !is_replaced(*setting, Source::preset_value))
      set(*setting, {value}, Source::preset_value);
  }
}

}  // namespace veil
