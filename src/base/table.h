// Plain tables for terminals and markdown.
#pragma once

#include <string>
#include <vector>

namespace veil {

// Columns whose cells all look like numbers (with a sign, a unit such as "ms" or "GiB", or "-" for
// none) are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has columns; fewer are filled up with empty ones.
  void row(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }
  const std::vector<std::string>& header() const { return header_; }
  const std::vector<std::vector<std::string>>& cells() const { return rows_; }
  std::vector<bool> numeric_columns() const;

  std::string text() const;  // columns two spaces apart, a rule under the header
  // | a | b | with alignment marks; a stroke inside a cell is escaped
  std::string markdown() const;
  std::string csv() const;  // RFC 4180

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace veil
