// The manual of the program, generated from the commands' options: a man page and docs/options.md.
#pragma once

#include <string>
#include <vector>

#include "cli/option_table.h"

namespace veil {

// As roff, for `man`.
std::string man_page(const std::vector<OptionTable>& tables, const std::string& version);
// As markdown: one table of options per command, with the defaults.
std::string options_page(const std::vector<OptionTable>& tables);

}  // namespace veil
