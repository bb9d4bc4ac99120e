#include "cli/options.h"

#include <algorithm>

#include "base/error.h"

namespace veil {
namespace {

constexpr const char* kFile = "config";
constexpr const char* kStored = "run folder";

}  // namespace

Options::Options(std::string command, std::string help)
    : command_(std::move(command)), help_(std::move(help)) {
  add("config", file_, {.help = "TOML file of options; the command line wins", .value = "FILE"});
}

void Options::insert(Setting setting) {
  VEIL_CHECK(setting.name == canonical(setting.name), "an option's own name is canonical: {}",
             setting.name);
  for (const std::string& alias : setting.spec.aliases)
    VEIL_CHECK(!find(alias), "option {} is defined twice", alias);
  VEIL_CHECK(!find(setting.name), "option {} is defined twice", setting.name);
  setting.initial = setting.show();
  setting.section = section_;
  setting.topic = topic_;
  settings_.push_back(std::move(setting));
}

void Options::brief(const std::vector<std::string>& names,
                    const std::vector<std::string>& examples) {
  for (const std::string& name : names) VEIL_CHECK(has(name), "no option {}", name);
  brief_ = names;
  examples_ = examples;
}

void Options::replaces(Pairs pairs) {
  for (const auto& [by, what] : pairs)
    VEIL_CHECK(has(by) && has(what), "no options {} and {}", by, what);
  replaces_ = std::move(pairs);
}

bool Options::is_replaced(const Setting& setting, Source source) const {
  return std::any_of(replaces_.begin(), replaces_.end(), [&](const auto& pair) {
    if (pair.second != setting.name) return false;
    const Setting& by = *find(pair.first);
    // The command line's words are known before any source is read, then come file and preset.
    const bool on_command_line = !by.typed.empty(), in_file = by.source == kFile;
    return on_command_line || (source != Source::file && in_file) ||
           (source == Source::stored && given(by.name));
  });
}

void Options::defaults(const std::string& name, const std::vector<DefaultCase>& cases) {
  Setting* setting = find(name);
  VEIL_CHECK(setting, "no option {}", name);
  setting->defaults = cases;
}

void Options::preset(const std::string& name,
                     std::vector<std::pair<std::string, std::string>> values) {
  if (!has("preset"))
    add("preset", preset_,
        {.help = "a named set of defaults, or a TOML file of your own", .value = "NAME"});
  presets_[name] = std::move(values);
}

void Options::preset_text(const std::string& name, const std::string& toml) {
  preset(name, {});
  preset_texts_[name] = toml;
}

void Options::drop(const std::string& name) {
  const Setting* setting = find(name);
  VEIL_CHECK(setting, "no option {}", name);
  settings_.erase(settings_.begin() + (setting - settings_.data()));
}

void Options::refuse(const std::vector<std::string>& names, const std::string& why) {
  for (const std::string& name : names) {
    Setting* setting = find(name);
    VEIL_CHECK(setting, "no option {}", name);
    setting->refused = why;
  }
}

const Options::Setting* Options::find(const std::string& name) const {
  const std::string wanted = canonical(name);
  for (const Setting& setting : settings_) {
    if (setting.name == wanted) return &setting;
    for (const std::string& alias : setting.spec.aliases) {
      if (canonical(alias) == wanted) return &setting;
    }
  }
  return nullptr;
}

std::vector<std::string> Options::option_names() const {
  std::vector<std::string> result{"help"};
  for (const Setting& setting : settings_) {
    if (!setting.refused.empty()) continue;
    result.push_back(setting.name);
    for (const std::string& alias : setting.spec.aliases) result.push_back(canonical(alias));
  }
  return result;
}

std::string Options::spelled(const Setting& setting) {
  return setting.typed.empty() ? "--" + setting.name : setting.typed;
}

void Options::set(Setting& setting, const std::vector<std::string>& values, Source source) {
  if (!setting.refused.empty() && source != Source::preset_value)
    user_error("{}: {}", spelled(setting), setting.refused);
  std::vector<std::string> texts = values;
  if (setting.list && !setting.spec.repeated) {
    texts.clear();
    for (const std::string& value : values) {
      for (const std::string& part : split(value, ',')) texts.push_back(part);
    }
  }
  const std::string wrong = setting.read(texts);
  if (wrong.empty()) {
    setting.source = source == Source::file           ? kFile
                     : source == Source::preset_value ? "preset"
                     : source == Source::stored       ? kStored
                                                      : "command line";
    return;
  }
  const std::string shown = setting.spec.secret ? kRedacted : join(values, " ");
  const std::string usual = default_text(described(setting));
  const std::string allowed = usual.empty() ? wrong : fmt::format("{} (default {})", wrong, usual);
  if (source == Source::file) user_error("{}: {} = {}: {}", file_, setting.name, shown, allowed);
  if (source == Source::preset_value)
    user_error("preset {}: {} = {}: {}", preset_, setting.name, shown, allowed);
  user_error("{} {}: {}", spelled(setting), shown.empty() ? "''" : shown, allowed);
}

void Options::settle_defaults() {
  for (Setting& setting : settings_) {
    if (setting.source.empty()) setting.initial = setting.show();
  }
}

bool Options::given(const std::string& name) const {
  const Setting* setting = find(name);
  VEIL_CHECK(setting, "no option {}", name);
  return !setting->source.empty() && setting->source != kStored;
}

bool Options::is_set(const std::string& name) const {
  const Setting* setting = find(name);
  VEIL_CHECK(setting, "no option {}", name);
  return !setting->source.empty();
}

void Options::set_stored(const nlohmann::json& settings, const std::vector<std::string>& except,
                         const Pairs& replaces) {
  const auto text = [](const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (Setting& setting : settings_) {
    const auto found = settings.find(setting.name);
    if (!setting.source.empty() || !setting.refused.empty() || found == settings.end()) continue;
    if (found->is_null() || std::find(except.begin(), except.end(), setting.name) != except.end())
      continue;
    const bool replaced = std::any_of(replaces.begin(), replaces.end(), [&](const auto& pair) {
      return pair.second == setting.name && given(pair.first);
    });
    if (replaced || is_replaced(setting, Source::stored)) continue;
    std::vector<std::string> values;
    if (found->is_array()) {
      for (const auto& value : *found) values.push_back(text(value));
    } else {
      values.push_back(text(*found));
    }
    if (!values.empty()) set(setting, values, Source::stored);
  }
}

std::string Options::shown(const std::string& name) const {
  const Setting* setting = find(name);
  VEIL_CHECK(setting, "no option {}", name);
  return setting->show();
}

}  // namespace veil
