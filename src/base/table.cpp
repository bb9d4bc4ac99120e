#include "base/table.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"

namespace veil {

namespace {

// Characters, not bytes: what a terminal gives one cell each (no wide or combining ones are printed
// here).
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

// "-", "12", "-1.5e3", "1,024", "3.2 GiB", "5%", "1.02x": a number and at most one short unit.
bool looks_numeric(std::string_view cell) {
  if (cell == "-") return true;
  size_t at = !cell.empty() && (cell[0] == '-' || cell[0] == '+') ? 1 : 0;
  const size_t digits = at;
  while (at < cell.size() &&
         (std::isdigit(static_cast<unsigned char>(cell[at])) || cell[at] == '.' || cell[at] == ','))
    ++at;
  if (at == digits) return false;
  const std::string_view unit = cell.substr(at);
  return unit.size() <= 9 && std::count(unit.begin(), unit.end(), ' ') <= 1;
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// No cell can end its column or become a tag, a link or code.
std::string markdown_cell(const std::string& cell) {
  std::string safe;
  for (const char c : cell) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '\n':
        safe += ' ';
        break;
      case '|':
      case '[':
      case '`':
        safe += '\\';
        [[fallthrough]];
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {
  VEIL_CHECK(!header_.empty(), "a table needs columns");
}

void Table::row(std::vector<std::string> cells) {
  VEIL_CHECK(cells.size() <= header_.size(), "{} cells in a table of {} columns", cells.size(),
             header_.size());
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::vector<bool> Table::numeric_columns() const {
  std::vector<bool> numeric(header_.size(), !rows_.empty());
  for (size_t column = 0; column < header_.size(); ++column) {
    bool any = false;
    for (const auto& cells : rows_) {
      if (cells[column].empty()) continue;
      any = true;
      if (!looks_numeric(cells[column])) numeric[column] = false;
    }
    if (!any) numeric[column] = false;
  }
  return numeric;
}

std::string Table::text() const {
  const std::vector<bool> right = numeric_columns();
  std::vector<size_t> widths;
  for (size_t column = 0; column < header_.size(); ++column) {
    size_t width = width_of(header_[column]);
    for (const auto& cells : rows_) width = std::max(width, width_of(cells[column]));
    widths.push_back(width);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t column = 0; column < cells.size(); ++column) {
      if (column) out += "  ";
      out += padded(cells[column], widths[column], right[column]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(header_);
  for (size_t column = 0; column < widths.size(); ++column) {
    if (column) out += "  ";
    out.append(widths[column], '-');
  }
  out += "\n";
  for (const auto& cells : rows_) out += line(cells);
  return out;
}

std::string Table::markdown() const {
  const std::vector<bool> right = numeric_columns();
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const auto& cell : cells) out.append(" ").append(markdown_cell(cell)).append(" |");
    return out + "\n";
  };
  std::string out = line(header_) + "|";
  for (const bool is_right : right) out += is_right ? "---:|" : "---|";
  out += "\n";
  for (const auto& cells : rows_) out += line(cells);
  return out;
}

std::string Table::csv() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t column = 0; column < cells.size(); ++column) {
      if (column) out += ",";
      out += csv_cell(cells[column]);
    }
    return out + "\n";
  };
  std::string out = line(header_);
  for (const auto& cells : rows_) out += line(cells);
  return out;
}

}  // namespace veil
