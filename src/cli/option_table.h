// The options of a command as plain data: what help, completion, the man page and the page of
// options are made from.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace veil {

// A default, when it holds ("": in all cases that no later one names), and what takes its place
// ("--steps is given").
struct DefaultCase {
  std::string value, when = "", unless = "";
};

struct OptionRow {
  std::string name;                  // without --
  std::vector<std::string> aliases;  // likewise
  std::string help;
  std::string kind;                  // what help calls the value: "N", "a|b|c"
  std::vector<std::string> choices;  // of an enum, or the names of presets
  std::string section, topic;        // where help lists it, and the word after --help that shows it
  std::vector<DefaultCase> defaults;
  bool flag = false, optional_value = false, positional = false, required = false, secret = false;
  bool number = false;  // the value is a number, or several
  bool brief = true;    // shown by a plain --help
};

struct OptionTable {
  std::string command;  // "train", "privacy epsilon"
  std::string help;
  std::vector<OptionRow> rows;
  std::vector<std::string> examples, presets;

  std::vector<std::string> topics() const;  // that --help takes, without `all`
};

// "5e-05; from scratch: 0.001"; "" if there is none, and for a flag that is off.
std::string default_text(const OptionRow& row);
// "--batch-size N"
std::string usage_of(const OptionRow& row);
std::string usage_line(const OptionTable& table);

// Text in lines of at most `width` columns. All but the first begin with `indent` spaces, and the
// first is taken to begin there too.
std::string wrapped(const std::string& text, size_t indent, size_t width);

// What `veil COMMAND --help TOPIC` prints. "": the brief rows; "all": all.
std::string help_text(const OptionTable& table, const std::string& topic, size_t width);

}  // namespace veil
