#include "cli/option_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "base/text.h"

namespace veil {
namespace {

constexpr size_t kTextColumn = 28;

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string help_line(const std::string& left, const std::string& right, size_t width) {
  std::string line = "  " + left;
  if (line.size() + 2 > kTextColumn) {
    line += "\n" + std::string(kTextColumn, ' ');
  } else {
    line += std::string(kTextColumn - line.size(), ' ');
  }
  return line + wrapped(right, kTextColumn, width) + "\n";
}

std::string row_text(const OptionRow& row, bool with_aliases) {
  std::string text = row.help;
  if (const std::string value = default_text(row); !value.empty())
    text += fmt::format(" (default {})", value);
  if (with_aliases && !row.aliases.empty())
    text += fmt::format(" [also --{}]", join(row.aliases, ", --"));
  return text;
}

std::string examples_text(const OptionTable& table) {
  std::string text = table.examples.empty() ? "" : "\nexamples:\n";
  for (const std::string& example : table.examples) text += "  " + example + "\n";
  return text;
}

}  // namespace

std::vector<std::string> OptionTable::topics() const {
  std::vector<std::string> found;
  for (const OptionRow& row : rows) {
    if (!row.topic.empty() && !is_among(found, row.topic)) found.push_back(row.topic);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string default_text(const OptionRow& row) {
  if (row.secret || (row.flag && row.defaults.size() == 1 && row.defaults[0].value == "off"))
    return "";
  std::vector<std::string> parts;
  for (const DefaultCase& one : row.defaults) {
    if (one.when.empty() && one.value.empty()) continue;
    std::string part = one.when.empty() ? one.value : fmt::format("{}: {}", one.when, one.value);
    if (!one.unless.empty()) part += " unless " + one.unless;
    parts.push_back(part);
  }
  return join(parts, "; ");
}

std::string usage_of(const OptionRow& row) {
  if (row.flag) return "--" + row.name;
  return "--" + row.name + (row.optional_value ? " [" + row.kind + "]" : " " + row.kind);
}

std::string usage_line(const OptionTable& table) {
  std::string usage = "veil " + table.command;
  for (const OptionRow& row : table.rows) {
    if (row.positional) usage += row.required ? " " + row.kind : " [" + row.kind + "]";
  }
  return usage + " [options]";
}

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  const size_t room = width > indent + 20 ? width - indent : 20;
  std::string result;
  size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > 0 && column + 1 + word.size() > room) {
      result += "\n" + std::string(indent, ' ');
      column = 0;
    }
    result += (column > 0 ? " " : "") + word;
    column += (column > 0 ? 1 : 0) + word.size();
  }
  return result;
}

std::string help_text(const OptionTable& table, const std::string& topic, size_t width) {
  const bool brief = topic.empty();
  const auto is_shown = [&](const OptionRow& row) {
    return brief ? row.brief : topic == "all" || row.topic == topic;
  };
  std::string text =
      fmt::format("usage: {}\n{}\n", usage_line(table), wrapped(table.help, 0, width));
  if (brief || topic == "all") text += examples_text(table);
  std::vector<std::string> sections;
  for (const OptionRow& row : table.rows) {
    if (is_shown(row) && !is_among(sections, row.section)) sections.push_back(row.section);
  }
  bool all_shown = true;
  for (const std::string& section : sections) {
    text += fmt::format("\n{}:\n", section.empty() ? "options" : section);
    for (const OptionRow& row : table.rows) {
      if (row.section == section && is_shown(row))
        text += help_line(usage_of(row), row_text(row, !brief || table.topics().empty()), width);
    }
  }
  for (const OptionRow& row : table.rows) all_shown = all_shown && is_shown(row);
  text += "\n";
  if (!all_shown || topic == "all") {
    std::vector<std::string> words = {"all"};
    for (const std::string& word : table.topics()) words.push_back(word);
    text += help_line("--help " + join(words, "|"),
                      all_shown ? "this text" : "all options, or those of one topic", width);
  } else {
    text += help_line("--help", "this text", width);
  }
  if (!table.presets.empty())
    text += "\n" + wrapped("presets: " + join(table.presets, ", "), 9, width) + "\n";
  return text;
}

}  // namespace veil
