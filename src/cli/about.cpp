// veil version, veil completion and veil man: the program about itself.
#include "base/build_info.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/manual.h"

namespace veil {

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("veil {}{}", build.version,
                     build.commit.empty() ? "" : " (" + build.commit + ")");
}

int run_version(const CommandCall& call) {
  Options options("version", "prints the program's version and the commit it was built from");
  if (!options.parse_call(call)) return kExitDone;
  fmt::print("{}\n", version_text());
  return kExitDone;
}

int run_completion(const CommandCall& call) {
  Shell shell = Shell::bash;
  Options options("completion", "prints a script that completes veil's command line in a shell");
  options.add("shell", shell, {.help = "whose script", .positional = true, .required = true});
  options.brief({"shell"},
                {"veil completion bash > ~/.local/share/bash-completion/completions/veil",
                 "source <(veil completion bash)"});
  if (!options.parse_call(call)) return kExitDone;
  std::vector<CompletedCommand> all;
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    all.push_back({command.name, command.help, command.words});
    known.emplace_back(command.name);
  }
  all.push_back({"help", "how to use a command", known});
  fmt::print("{}", completion_script(shell, all, option_tables()));
  return kExitDone;
}

int run_man(const CommandCall& call) {
  bool markdown = false;
  Options options("man", "prints the program's man page");
  options.add("markdown", markdown,
              {.help = "print docs/options.md instead: every option's table"});
  options.brief({"markdown"}, {"veil man | man -l -"});
  if (!options.parse_call(call)) return kExitDone;
  const std::vector<OptionTable> tables = option_tables();
  fmt::print("{}", markdown ? options_page(tables) : man_page(tables, build_info().version));
  return kExitDone;
}

}  // namespace veil
