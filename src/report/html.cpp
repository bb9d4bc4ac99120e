#include "report/html.h"

#include <fmt/core.h>

#include <cctype>

namespace veil {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string address(const std::string& relative_path) {
  std::string out = "./";
  for (const char c : relative_path) {
    if (std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-_.~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string html_table(const Table& table, const std::string& caption) {
  const std::vector<bool> right = table.numeric_columns();
  std::string out = fmt::format(
      "<p class=\"caption\">{0}</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">"
      "<table><thead><tr>",
      escaped(caption));
  const auto style = [&](size_t column) { return right[column] ? " class=\"n\"" : ""; };
  for (size_t i = 0; i < table.header().size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", style(i), escaped(table.header()[i]));
  out += "</tr></thead><tbody>\n";
  for (const auto& cells : table.cells()) {
    out += "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      out += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", style(i), escaped(cells[i]))
                    : fmt::format("<td{}>{}</td>", style(i), escaped(cells[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace veil
