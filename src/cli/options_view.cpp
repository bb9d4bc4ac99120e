// The options as others see them: the description that help is made from, the tables of settings,
// the record, and the words for another command.
#include <algorithm>

#include "base/error.h"
#include "base/shell_word.h"
#include "cli/option_words.h"
#include "cli/options.h"

namespace veil {

OptionRow Options::described(const Setting& setting) const {
  OptionRow row;
  row.name = setting.name;
  row.aliases = setting.spec.aliases;
  row.help = setting.spec.help;
  row.kind = setting.kind;
  row.choices = setting.choices;
  row.section = setting.section;
  row.topic = setting.topic;
  row.flag = setting.flag;
  row.optional_value = setting.spec.bare.has_value();
  row.positional = setting.spec.positional;
  row.required = setting.spec.required;
  row.secret = setting.spec.secret;
  row.number = setting.number;
  row.brief = brief_.empty() || setting.name == "config" ||
              std::find(brief_.begin(), brief_.end(), setting.name) != brief_.end();
  row.defaults = setting.defaults;
  if (row.defaults.empty())
    row.defaults = {{!setting.spec.origin.empty() ? setting.spec.origin
                     : setting.initial.empty()    ? setting.spec.fallback
                                                  : setting.initial}};
  return row;
}

OptionTable Options::description() const {
  OptionTable table;
  table.command = command_;
  table.help = help_;
  table.examples = examples_;
  for (const auto& [name, unused] : presets_) table.presets.push_back(name);
  for (const Setting& setting : settings_) {
    if (!setting.refused.empty()) continue;
    table.rows.push_back(described(setting));
    if (setting.name == "preset") table.rows.back().choices = table.presets;
  }
  return table;
}

std::vector<std::string> Options::row_of(const Setting& setting) const {
  const std::string value = setting.show();
  return {setting.name,
          value.empty()         ? "-"
          : setting.spec.secret ? kRedacted
                                : value,
          setting.source};
}

std::string Options::table() const {
  std::vector<std::vector<std::string>> rows;
  for (const Setting& setting : settings_) {
    if (setting.refused.empty()) rows.push_back(row_of(setting));
  }
  return align_columns(rows, 2);
}

std::string Options::short_table(const std::vector<std::string>& always) const {
  std::vector<std::vector<std::string>> rows;
  for (const Setting& setting : settings_) {
    const std::string value = setting.show();
    const bool named =
        std::find(always.begin(), always.end(), setting.name) != always.end() && !value.empty();
    // A run's folder holds every setting, whether somebody chose it or not.
    const bool stored = is_set(setting.name) && !given(setting.name);
    const bool chosen = !stored && !setting.source.empty();
    if (setting.refused.empty() && (named || chosen || value != setting.initial))
      rows.push_back(row_of(setting));
  }
  return align_columns(rows, 2);
}

nlohmann::json Options::json() const {
  nlohmann::json result = nlohmann::json::object();
  for (const Setting& setting : settings_) {
    result[setting.name] = setting.spec.secret && !setting.show().empty()
                               ? nlohmann::json(kRedacted)
                               : setting.record();
  }
  return result;
}

std::vector<std::string> Options::passed_on(const std::vector<std::string>& always,
                                            const std::vector<std::string>& except) const {
  const auto in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<std::string> words;
  for (const Setting& setting : settings_) {
    if (setting.name == "config" || setting.name == "preset" || in(except, setting.name)) continue;
    if (setting.source.empty() && !in(always, setting.name)) continue;
    VEIL_CHECK(!setting.spec.secret && !setting.spec.repeated, "--{} cannot be passed on",
               setting.name);
    const std::string value = setting.show();
    if (value.empty()) continue;
    words.push_back("--" + setting.name + (setting.flag ? "=" + value : ""));
    if (!setting.flag) words.push_back(value);
  }
  return words;
}

void Options::each_argument(const std::function<void(const std::string&, bool)>& visit) const {
  bool secret = false;
  for (const std::string& argument : arguments_) {
    if (is_option(argument)) {
      const Setting* setting = find(option_name(argument));
      secret = setting && setting->spec.secret;
    }
    visit(argument, secret);
  }
}

std::vector<std::string> Options::arguments_without_secrets() const {
  std::vector<std::string> words;
  each_argument([&](const std::string& argument, bool secret) {
    if (!secret) words.push_back(argument);
  });
  return words;
}

std::string Options::command_line() const {
  std::string result = "veil " + command_;
  each_argument([&](const std::string& argument, bool secret) {
    const size_t equals = argument.find('=');
    std::string shown = argument;
    if (secret && !is_option(argument)) shown = kRedacted;
    if (secret && is_option(argument) && equals != std::string::npos)
      shown = argument.substr(0, equals + 1) + kRedacted;
    result += " " + (secret ? shown : shell_word(shown));
  });
  return result;
}

}  // namespace veil
