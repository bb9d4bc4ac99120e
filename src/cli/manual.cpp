#include "cli/manual.h"

#include <fmt/core.h>

#include "base/text.h"
#include "cli/exit_codes.h"

namespace veil {
namespace {

// Text for roff: hyphens that can be searched for, and no line that reads as a request.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return !result.empty() && (result[0] == '.' || result[0] == '\'') ? "\\&" + result : result;
}

std::string markdown_cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

std::string markdown_code(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return "`" + result + "`";
}

}  // namespace

std::string man_page(const std::vector<OptionTable>& tables, const std::string& version) {
  std::string page = fmt::format(
      ".TH VEIL 1 \"\" \"veil {}\" \"User Commands\"\n"
      ".SH NAME\nveil \\- train and profile models under differential privacy\n"
      ".SH SYNOPSIS\n.B veil\n.I COMMAND\n[options]\n"
      ".SH DESCRIPTION\nVeil trains language models and diffusion transformers, privately or not, "
      "on one or several GPUs or on a CPU. Every option can also be given in a TOML file with "
      "\\fB\\-\\-config\\fR. In names of options, - and _ mean the same.\n"
      ".SH COMMANDS\n",
      version);
  for (const OptionTable& table : tables) {
    page += fmt::format(".SS {}\n{}\n", roff(usage_line(table)), roff(table.help));
    for (const OptionRow& row : table.rows) {
      const std::string value = default_text(row);
      page += fmt::format(".TP\n.B {}\n{}{}\n", roff(usage_of(row)), roff(row.help),
                          value.empty() ? "" : roff(fmt::format(" (default {})", value)));
    }
    for (const std::string& example : table.examples)
      page += fmt::format(".PP\n.EX\n{}\n.EE\n", roff(example));
  }
  page += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes)
    page += fmt::format(".TP\n{}\n{}\n", code, roff(meaning));
  return page;
}

std::string options_page(const std::vector<OptionTable>& tables) {
  std::string page =
      "# Options\n\nEvery option of every command, with its default. This page is generated: "
      "`veil man --markdown` prints it. Where several defaults are listed, the last one that "
      "applies to the run holds. In names, `-` and `_` mean the same.\n";
  for (const OptionTable& table : tables) {
    page += fmt::format("\n## {}\n\n{}\n\n| option | default | |\n|---|---|---|\n",
                        "veil " + table.command, markdown_cell(table.help));
    for (const OptionRow& row : table.rows) {
      const std::string value = default_text(row);
      std::string help = markdown_cell(row.help);
      if (!row.aliases.empty()) help += fmt::format(" [also `--{}`]", join(row.aliases, "`, `--"));
      page += fmt::format("| {} | {} | {} |\n", markdown_code(usage_of(row)), markdown_cell(value),
                          help);
    }
  }
  return page;
}

}  // namespace veil
