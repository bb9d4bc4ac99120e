// Completion of veil's command line for shells, generated from the commands' options.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/names.h"
#include "cli/option_table.h"

namespace veil {

enum class Shell { bash, zsh, fish };
const NameTable<Shell>& names(Shell);

struct CompletedCommand {
  std::string name, help;
  std::vector<std::string> words = {};  // that may follow the name, as in `veil suite linear`
};

// A script for the shell to read. `tables`: the options, by "train" or "suite linear".
std::string completion_script(Shell shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<OptionTable>& tables);

}  // namespace veil
