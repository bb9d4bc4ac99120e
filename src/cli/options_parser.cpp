// The parser of a command line: which options its words give, and the answer to --help.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/option_words.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace veil {

void Options::unknown_option(const std::string& given) const {
  const std::string meant = nearest(given, option_names());
  user_error("unknown option --{}: {}`veil {} --help` lists all", given,
             meant.empty() ? "" : fmt::format("did you mean --{}? ", meant), command_);
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

}  // namespace veil
