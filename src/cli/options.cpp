#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/utf8.h"
#include "cli/terminal.h"

namespace veil::option_values {
namespace {

std::string allowed_range(const char* what, const OptionSpec& spec) {
  if (spec.minimum && spec.maximum)
    return fmt::format("allowed is {} from {} to {}", what, *spec.minimum, *spec.maximum);
  if (spec.minimum) return fmt::format("allowed is {} of at least {}", what, *spec.minimum);
  if (spec.maximum) return fmt::format("allowed is {} of at most {}", what, *spec.maximum);
  return fmt::format("allowed is {}", what);
}

bool in_range(double value, const OptionSpec& spec) {
  return (!spec.minimum || value >= *spec.minimum) && (!spec.maximum || value <= *spec.maximum);
}

template <typename Integer>
std::string read_integer(const std::string& text, const OptionSpec& spec, Integer& field) {
  Integer value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return fmt::format("{}, and no more than {}", allowed_range("a whole number", spec),
                       std::numeric_limits<Integer>::max());
  }
  if (error != std::errc{} || stop != end || !in_range(static_cast<double>(value), spec)) {
    return allowed_range("a whole number", spec);
  }
  field = value;
  return "";
}

}  // namespace

std::string read(const std::string& text, const OptionSpec& spec, int64_t& field) {
  return read_integer(text, spec, field);
}
std::string read(const std::string& text, const OptionSpec& spec, int& field) {
  return read_integer(text, spec, field);
}

std::string read(const std::string& text, const OptionSpec& spec, double& field) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value) || !in_range(value, spec)) {
    return allowed_range("a number", spec);
  }
  field = value;
  return "";
}

std::string read(const std::string& text, const OptionSpec&, bool& field) {
  const std::string word = canonical(text);
  const bool yes = word == "true" || word == "on" || word == "yes" || word == "1";
  const bool no = word == "false" || word == "off" || word == "no" || word == "0";
  if (!yes && !no) return "allowed are true and false";
  field = yes;
  return "";
}

std::string read(const std::string& text, const OptionSpec&, std::string& field) {
  field = text;
  return "";
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates) {
  const std::string found = nearest(given, candidates);
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

std::string show(int64_t field) {
  return std::to_string(field);
}
std::string show(int field) {
  return std::to_string(field);
}
std::string show(double field) {
  return fmt::format("{}", field);
}
std::string show(bool field) {
  return field ? "on" : "off";
}
std::string show(const std::string& field) {
  return field;
}

}  // namespace veil::option_values

namespace veil {
namespace {

constexpr const char* kRedacted = "***";
constexpr const char* kStored = "run folder";

bool is_option(const std::string& argument) {
  return argument.size() > 2 && argument.rfind("--", 0) == 0;
}

// "--batch_size=4" -> "batch-size"
std::string option_name(const std::string& argument) {
  return canonical(std::string_view(argument).substr(2, argument.find('=') - 2));
}

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

void Options::unknown_option(const std::string& given) const {
  const std::string meant = nearest(given, option_names());
  user_error("unknown option --{}: {}`veil {} --help` lists all", given,
             meant.empty() ? "" : fmt::format("did you mean --{}? ", meant), command_);
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
    setting.source = source == Source::file           ? "config"
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

void Options::read_file(const std::string& path) {
  std::ifstream stream(path);
  std::error_code ignored;
  if (!stream || std::filesystem::is_directory(path, ignored))
    user_error("--config {}: no such file can be read", path);
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
      user_error("--preset {}: no such file can be read", path);
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
    if (setting->source.empty()) set(*setting, {value}, Source::preset_value);
  }
}

// Option names in their canonical spelling, each known and given once.
std::vector<std::string> Options::normalized(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  std::set<std::string> seen;
  bool options_ended = false;
  for (const std::string& argument : arguments) {
    options_ended = options_ended || argument == "--";
    if (options_ended || !is_option(argument)) {
      result.push_back(argument);
      continue;
    }
    const std::string name = option_name(argument);
    const size_t equals = argument.find('=');
    std::string value = equals == std::string::npos ? "" : argument.substr(equals);
    Setting* setting = find(name);
    if (!setting && name.rfind("no-", 0) == 0 && value.empty()) {
      setting = find(name.substr(3));
      if (setting && !setting->flag) setting = nullptr;
      if (setting) value = "=false";
    }
    if (!setting) unknown_option(argument.substr(2, equals - 2));
    const std::string typed = argument.substr(0, equals);
    if (value == "=") user_error("{}=: no value follows '='", typed);
    if (!seen.insert(setting->name).second && !setting->spec.repeated) {
      user_error("{} is given twice{}: allowed is once{}", typed,
                 setting->typed == typed ? "" : fmt::format(", also as {}", setting->typed),
                 setting->list ? fmt::format("; give a list as {} A,B", typed) : "");
    }
    setting->typed = typed;
    result.push_back("--" + setting->name + value);
  }
  return result;
}

bool Options::answer_help(const std::vector<std::string>& arguments) const {
  const OptionTable table = description();
  std::vector<std::string> allowed = table.topics();
  allowed.insert(allowed.begin(), "all");
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    if (word != "-h" && !(is_option(word) && option_name(word) == "help")) continue;
    const size_t equals = word.find('=');
    std::string topic = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (topic.empty() && i + 1 < arguments.size() && arguments[i + 1].rfind('-', 0) != 0)
      topic = canonical(arguments[i + 1]);
    if (!topic.empty() && std::find(allowed.begin(), allowed.end(), topic) == allowed.end())
      user_error("--help {}: allowed are {}{}", topic, join(allowed, ", "),
                 option_values::did_you_mean(topic, allowed));
    fmt::print("{}", help_text(table, topic, static_cast<size_t>(terminal_width(stdout))));
    return true;
  }
  return false;
}

bool Options::parse_call(const CommandCall& call) {
  if (!call.describe) return parse(call.arguments);
  call.describe(description());
  return false;
}

void Options::settle_defaults() {
  for (Setting& setting : settings_) {
    if (setting.source.empty()) setting.initial = setting.show();
  }
}

bool Options::parse(const std::vector<std::string>& arguments) {
  arguments_ = arguments;
  if (answer_help(arguments)) return false;
  const std::vector<std::string> wanted = normalized(arguments);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<CLI::Option*> parsed;
  for (const Setting& setting : settings_) {
    const std::string names =
        setting.spec.positional ? fmt::format("{0},--{0}", setting.name) : "--" + setting.name;
    CLI::Option* option = setting.flag ? app.add_flag(names) : app.add_option(names);
    if (!setting.flag)
      option->expected(setting.spec.bare ? 0 : 1,
                       setting.list ? CLI::detail::expected_max_vector_size : 1);
    option->allow_extra_args(setting.list && !setting.spec.repeated);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    parsed.push_back(option);
  }
  try {
    // CLI11 takes them last first
    app.parse(std::vector<std::string>(wanted.rbegin(), wanted.rend()));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--name: ..."
    const Setting* setting = is_option(text) ? find(text.substr(2, text.find(':') - 2)) : nullptr;
    if (!setting) throw UserError(text);
    user_error("{}: a value is missing ({})", spelled(*setting), setting->kind);
  } catch (const CLI::ParseError& error) {
    throw UserError(fmt::format("{}; `veil {} --help` lists all options", error.what(), command_));
  }
  const std::vector<std::string> extra = app.remaining();
  if (!extra.empty()) {
    user_error("unexpected argument '{}': `veil {} --help` lists what is allowed", extra.front(),
               command_);
  }

  std::vector<std::vector<std::string>> values;
  for (size_t i = 0; i < settings_.size(); ++i) {
    std::vector<std::string> results = parsed[i]->results();
    const Setting& setting = settings_[i];
    if (setting.spec.bare && parsed[i]->count() > 0 && results == std::vector<std::string>{""})
      results = {*setting.spec.bare};
    values.push_back(std::move(results));
  }
  const auto apply = [&](size_t i) {
    if (parsed[i]->count() > 0) set(settings_[i], values[i], Source::command_line);
  };
  for (size_t i = 0; i < settings_.size(); ++i) {
    if (settings_[i].name == "config" || settings_[i].name == "preset") apply(i);
  }
  const std::string preset_from_command_line = preset_;
  if (!file_.empty()) read_file(file_);
  if (!preset_from_command_line.empty()) preset_ = preset_from_command_line;
  if (!preset_.empty()) apply_preset();
  for (size_t i = 0; i < settings_.size(); ++i) apply(i);
  for (const Setting& setting : settings_) {
    if (setting.spec.required && setting.source.empty()) {
      const std::string name = setting.spec.positional ? setting.kind : "--" + setting.name;
      user_error("{} is missing: {}; `veil {} --help` says more", name, setting.spec.help,
                 command_);
    }
  }
  return true;
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
                         const std::vector<std::pair<std::string, std::string>>& replaces) {
  const auto text = [](const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (Setting& setting : settings_) {
    const auto found = settings.find(setting.name);
    if (!setting.source.empty() || !setting.refused.empty() || found == settings.end()) continue;
    if (found->is_null() || std::find(except.begin(), except.end(), setting.name) != except.end())
      continue;
    if (std::any_of(replaces.begin(), replaces.end(), [&](const auto& pair) {
          return pair.second == setting.name && given(pair.first);
        }))
      continue;
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
    if (setting.refused.empty() && (named || !setting.source.empty() || value != setting.initial))
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
    result += " " + shown;
  });
  return result;
}

}  // namespace veil
