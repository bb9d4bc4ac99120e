#include "cli/completion.h"

#include <algorithm>

namespace veil {
namespace {

// For a place between single quotes.
std::string in_quotes(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + result + "'";
}

std::vector<std::string> option_words(const OptionTable& table) {
  std::vector<std::string> words;
  for (const OptionRow& row : table.rows) words.push_back("--" + row.name);
  words.push_back("--help");
  return words;
}

// What may follow an option: pairs of the option's spelling and the values.
std::vector<std::pair<std::string, std::vector<std::string>>> value_words(
    const OptionTable& table) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
  for (const OptionRow& row : table.rows) {
    if (row.choices.empty()) continue;
    found.emplace_back("--" + row.name, row.choices);
    for (const std::string& alias : row.aliases) found.emplace_back("--" + alias, row.choices);
  }
  std::vector<std::string> topics = table.topics();
  topics.insert(topics.begin(), "all");
  found.emplace_back("--help", topics);
  return found;
}

// What completes the first argument that is not an option, if that is one of some names.
std::vector<std::string> positional_words(const OptionTable& table) {
  for (const OptionRow& row : table.rows) {
    if (row.positional && !row.choices.empty()) return row.choices;
  }
  return {};
}

std::vector<std::string> command_names(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> found;
  for (const CompletedCommand& command : commands) found.push_back(command.name);
  return found;
}

std::string bash_script(const std::vector<CompletedCommand>& commands,
                        const std::vector<OptionTable>& tables) {
  const auto reply = [](const std::vector<std::string>& words) {
    return fmt::format("COMPREPLY=($(compgen -W {} -- \"$cur\"))", in_quotes(join(words, " ")));
  };
  std::string text =
      "# Completion of veil for bash: source this file, or install it as\n"
      "# ~/.local/share/bash-completion/completions/veil\n"
      "_veil() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command=${COMP_WORDS[1]}\n"
      "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then "
      "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n";
  text +=
      fmt::format("    {}\n    return\n  fi\n  case $command in\n", reply(command_names(commands)));
  for (const CompletedCommand& command : commands) {
    if (command.words.empty()) continue;
    text += fmt::format(
        "    {})\n      if ((COMP_CWORD == 2)); then\n        {}\n        return\n      fi\n"
        "      command+=\" ${{COMP_WORDS[2]}}\" ;;\n",
        command.name, reply(command.words));
  }
  text += "  esac\n  case \"$command $prev\" in\n";
  for (const OptionTable& table : tables) {
    for (const auto& [option, values] : value_words(table))
      text += fmt::format("    {}) {}; return ;;\n", in_quotes(table.command + " " + option),
                          reply(values));
  }
  text += "  esac\n  case $command in\n";
  for (const OptionTable& table : tables) {
    const std::vector<std::string> values = positional_words(table);
    text += fmt::format("    {}) if [[ $cur == -* ]]; then {}; {}fi ;;\n", in_quotes(table.command),
                        reply(option_words(table)),
                        values.empty() ? "" : fmt::format("else {}; ", reply(values)));
  }
  return text + "  esac\n}\ncomplete -o default -F _veil veil\n";
}

std::string zsh_script(const std::vector<CompletedCommand>& commands,
                       const std::vector<OptionTable>& tables) {
  std::string text =
      "#compdef veil\n"
      "# Completion of veil for zsh: install it as _veil in a folder of $fpath.\n"
      "_veil() {\n"
      "  local command=$words[2] prev=$words[CURRENT-1]\n"
      "  if ((CURRENT == 2)); then\n    local -a commands=(\n";
  for (const CompletedCommand& command : commands)
    text += fmt::format("      {}\n", in_quotes(command.name + ":" + command.help));
  text += "    )\n    _describe command commands\n    return\n  fi\n  case $command in\n";
  for (const CompletedCommand& command : commands) {
    if (command.words.empty()) continue;
    text += fmt::format(
        "    {}) if ((CURRENT == 3)); then compadd -- {}; return; fi; command+=\" $words[3]\" ;;\n",
        command.name, join(command.words, " "));
  }
  text += "  esac\n  case \"$command $prev\" in\n";
  for (const OptionTable& table : tables) {
    for (const auto& [option, values] : value_words(table))
      text += fmt::format("    {}) compadd -- {}; return ;;\n",
                          in_quotes(table.command + " " + option), join(values, " "));
  }
  text += "  esac\n  case $command in\n";
  for (const OptionTable& table : tables) {
    const std::vector<std::string> values = positional_words(table);
    text +=
        fmt::format("    {}) if [[ $words[CURRENT] == -* ]]; then compadd -- {}; else {}; fi ;;\n",
                    in_quotes(table.command), join(option_words(table), " "),
                    values.empty() ? "_files" : "compadd -- " + join(values, " "));
  }
  return text + "  esac\n}\ncompdef _veil veil\n";
}

std::string fish_script(const std::vector<CompletedCommand>& commands,
                        const std::vector<OptionTable>& tables) {
  std::string text =
      "# Completion of veil for fish: install it as ~/.config/fish/completions/veil.fish\n";
  for (const CompletedCommand& command : commands) {
    text += fmt::format("complete -c veil -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                        in_quotes(command.help));
    if (!command.words.empty())
      text += fmt::format(
          "complete -c veil -n '__fish_seen_subcommand_from {0}; and not "
          "__fish_seen_subcommand_from {1}' -f -a '{1}'\n",
          command.name, join(command.words, " "));
  }
  for (const OptionTable& table : tables) {
    const std::string last = table.command.substr(table.command.find_last_of(' ') + 1);
    for (const OptionRow& row : table.rows) {
      text += fmt::format("complete -c veil -n '__fish_seen_subcommand_from {}' -l {} -d {}{}\n",
                          last, row.name, in_quotes(row.help),
                          row.flag              ? ""
                          : row.choices.empty() ? " -r"
                                                : " -x -a " + in_quotes(join(row.choices, " ")));
    }
    if (const std::vector<std::string> values = positional_words(table); !values.empty())
      text += fmt::format("complete -c veil -n '__fish_seen_subcommand_from {}' -f -a '{}'\n", last,
                          join(values, " "));
  }
  return text;
}

}  // namespace

const NameTable<Shell>& names(Shell) {
  static const NameTable<Shell> table = {
      {Shell::bash, "bash"}, {Shell::zsh, "zsh"}, {Shell::fish, "fish"}};
  return table;
}

std::string completion_script(Shell shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<OptionTable>& tables) {
  switch (shell) {
    case Shell::bash:
      return bash_script(commands, tables);
    case Shell::zsh:
      return zsh_script(commands, tables);
    case Shell::fish:
      return fish_script(commands, tables);
  }
  return "";
}

}  // namespace veil
