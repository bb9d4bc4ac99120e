// The options of one command. One definition of an option gives its parsing, its help, its key in a
// TOML file, its row in the table of resolved settings and its entry in the record.
//
//   Options options("profile", "measure one configuration");
//   options.add("batch-size", config.batch_size,
//               {.aliases = {"batch_sizes"}, .help = "samples per micro-batch", .minimum = 1});
//   options.preset("tiny", {{"batch-size", "64"}});
//   if (!options.parse(arguments)) return kExitDone;  // --help was given and answered
//   fmt::print("{}", options.table());
//
// A value comes from, last wins: the field as it was, --preset, the --config file, the command
// line. Whatever is wrong is a UserError of one line that says what was given, what is allowed and
// what was probably meant; no field is then to be used.
//
// Fields: int64_t, int, double, std::string, bool (a flag: --x, --no-x, --x=false), an enum with
// names() (base/names.h), std::optional of these (empty: not set) and std::vector of these (--seq
// 1,2 or --seq 1 2). They must live as long as the Options.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/option_table.h"
#include "cli/option_values.h"

namespace veil {

// How a command is called. Where `describe` is set, it gets the command's options and nothing runs.
struct CommandCall {
  std::vector<std::string> arguments;  // after the command's name
  std::function<void(const OptionTable&)> describe = {};
};

class Options {
 public:
  Options(std::string command, std::string help);

  template <typename T>
  void add(const std::string& name, T& field, OptionSpec spec = {});
  template <typename T>
  void add(const std::string& name, std::optional<T>& field, OptionSpec spec = {});
  template <typename T>
  void add(const std::string& name, std::vector<T>& field, OptionSpec spec = {});

  // Options that are added from here on are listed under this title in the help, and `--help TOPIC`
  // shows those of its topic.
  void section(const std::string& title, const std::string& topic = "") {
    section_ = title;
    topic_ = topic;
  }
  // What a plain --help shows: these options only, and examples.
  void brief(const std::vector<std::string>& names, const std::vector<std::string>& examples);
  // Pairs (A, B): if A is given, B is ignored in sources of lower rank, as a file's `epochs` beside
  // `--steps 10`. If one source gives both, the command decides.
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  void replaces(Pairs pairs);
  // The option's defaults, if they differ from run to run; the last case that applies holds.
  void defaults(const std::string& name, const std::vector<DefaultCase>& cases);

  // A named set of values; the first one brings the option --preset.
  void preset(const std::string& name, std::vector<std::pair<std::string, std::string>> values);
  // The same as the text of a TOML file. Where a command has presets, `--preset PATH.toml` takes a
  // person's own file, and a bare name also one of presets/NAME.toml or presets/<the command's last
  // word>/NAME.toml below the working folder.
  void preset_text(const std::string& name, const std::string& toml);

  // Takes an option of a shared set away, so that the command can add one of the same name and
  // another kind (a list of what is varied).
  void drop(const std::string& name);

  // An option of a shared set that has no meaning here: not listed, and `why` answers
  // whoever gives it.
  void refuse(const std::vector<std::string>& names, const std::string& why);

  // False if --help was given and answered.
  bool parse(const std::vector<std::string>& arguments);
  // False also if the call only asks for a description.
  bool parse_call(const CommandCall& call);
  // The defaults are what the fields of options that were not given hold now: to be called when a
  // command has resolved them.
  void settle_defaults();

  bool given(const std::string& name) const;   // by preset, file or command line
  bool is_set(const std::string& name) const;  // given, or taken from a stored run
  // Sets what was not given to the values of a stored run, by the options' names. What the table
  // has no option for is left out; so is B where A of one of these pairs was given.
  void set_stored(const nlohmann::json& settings, const std::vector<std::string>& except,
                  const Pairs& replaces = {});
  bool has(const std::string& name) const { return find(name) != nullptr; }
  OptionTable description() const;
  std::string shown(const std::string& name) const;  // the field as it is now
  // The fields as they are now: what a command resolves after parsing (a default that depends on
  // the world) is shown resolved.
  std::string table() const;
  // The rows that differ from the defaults, and these wherever they hold something.
  std::string short_table(const std::vector<std::string>& always) const;
  nlohmann::json json() const;
  // Arguments that bring another command with these options to the same values: what was given, by
  // preset, file or command line, and the `always` ones; never the `except` ones, --config or
  // --preset.
  std::vector<std::string> passed_on(const std::vector<std::string>& always,
                                     const std::vector<std::string>& except) const;
  std::string command_line() const;  // as it was given, secrets replaced by ***
  std::vector<std::string> arguments_without_secrets() const;  // as they were given

 private:
  enum class Source { preset_value, file, command_line, stored };
  struct Setting {
    std::string name;
    OptionSpec spec;
    std::string kind;  // for help
    std::vector<std::string> choices = {};
    bool flag = false, list = false, number = false;
    std::string refused = "";  // why it has no meaning here
    std::function<std::string(const std::vector<std::string>&)> read = {};  // "" or what is allowed
    std::function<std::string()> show = {};
    std::function<nlohmann::json()> record = {};
    std::string section = "", topic = "";  // of the help
    std::string initial = "";              // show() when it was added or its default was settled
    std::vector<DefaultCase> defaults = {};
    std::string source = "";  // "" while it is the default
    std::string typed = "";   // "--lr": as the command line spells it
  };

  void insert(Setting setting);
  OptionRow described(const Setting& setting) const;
  static std::string spelled(const Setting& setting);  // as a person has typed it
  // Answers --help, if it is among the arguments.
  bool answer_help(const std::vector<std::string>& arguments) const;
  std::vector<std::string> row_of(const Setting& setting) const;  // of the tables
  // Each argument as it was given, and whether it is a secret's option or value.
  void each_argument(
      const std::function<void(const std::string& argument, bool secret)>& visit) const;
  const Setting* find(const std::string& name) const;
  Setting* find(const std::string& name) {
    return const_cast<Setting*>(std::as_const(*this).find(name));
  }
  std::vector<std::string> option_names() const;
  [[noreturn]] void unknown_option(const std::string& given) const;
  void set(Setting& setting, const std::vector<std::string>& values, Source source);
  // Whether a source of a higher rank than this one gave what replaces it.
  bool is_replaced(const Setting& setting, Source source) const;
  void read_file(const std::string& path);
  void read_toml(std::istream& stream, const std::string& shown, Source source);
  void apply_preset();
  std::vector<std::string> normalized(const std::vector<std::string>& arguments);

  std::string command_, help_, section_, topic_;
  std::vector<std::string> brief_, examples_;
  std::vector<Setting> settings_;
  Pairs replaces_;
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> presets_;
  std::map<std::string, std::string> preset_texts_;
  std::string preset_, file_;
  std::vector<std::string> arguments_;
};

template <typename T>
void Options::add(const std::string& name, T& field, OptionSpec spec) {
  Setting setting{.name = name,
                  .spec = spec,
                  .kind = option_values::kind<T>(spec),
                  .choices = option_values::choices<T>(),
                  .flag = std::is_same_v<T, bool>,
                  .number = option_values::is_number<T>};
  setting.read = [&field, spec](const std::vector<std::string>& texts) {
    return texts.size() == 1 ? option_values::read(texts[0], spec, field)
                             : std::string("allowed is one value");
  };
  setting.show = [&field] { return option_values::show(field); };
  setting.record = [&field] { return option_values::record(field); };
  insert(std::move(setting));
}

template <typename T>
void Options::add(const std::string& name, std::optional<T>& field, OptionSpec spec) {
  Setting setting{.name = name,
                  .spec = spec,
                  .kind = option_values::kind<T>(spec),
                  .choices = option_values::choices<T>(),
                  .flag = std::is_same_v<T, bool>,
                  .number = option_values::is_number<T>};
  setting.read = [&field, spec](const std::vector<std::string>& texts) {
    T value{};
    const std::string wrong =
        texts.size() == 1 ? option_values::read(texts[0], spec, value) : "allowed is one value";
    if (wrong.empty()) field = value;
    return wrong;
  };
  setting.show = [&field] { return field ? option_values::show(*field) : std::string(); };
  setting.record = [&field] { return field ? option_values::record(*field) : nlohmann::json(); };
  insert(std::move(setting));
}

template <typename T>
void Options::add(const std::string& name, std::vector<T>& field, OptionSpec spec) {
  Setting setting{.name = name,
                  .spec = spec,
                  .kind = option_values::kind<T>(spec) + (spec.repeated ? "" : ",..."),
                  .choices = option_values::choices<T>(),
                  .list = true,
                  .number = option_values::is_number<T>};
  setting.read = [&field, spec](const std::vector<std::string>& texts) {
    std::vector<T> values;
    for (const std::string& text : texts) {
      T value{};
      const std::string wrong = option_values::read(text, spec, value);
      if (!wrong.empty()) return wrong;
      values.push_back(value);
    }
    field = values;
    return std::string();
  };
  setting.show = [&field] {
    std::vector<std::string> parts;
    for (const T& value : field) parts.push_back(option_values::show(value));
    return join(parts, ",");
  };
  setting.record = [&field] {
    nlohmann::json values = nlohmann::json::array();
    for (const T& value : field) values.push_back(option_values::record(value));
    return values;
  };
  insert(std::move(setting));
}

}  // namespace veil
