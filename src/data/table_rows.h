// Rows of CSV and TSV: a row is an object whose keys are the words of the first one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace veil::data {

// A row at a time. CSV is RFC 4180's: fields that hold the separator, quotes or line ends stand in
// quotes, and a quote among them is doubled. A TSV field is taken as it is, unless it is quoted as
// a whole on its line.
class TableRows {
 public:
  TableRows(std::string text, char separator) : text_(std::move(text)), separator_(separator) {}

  struct Row {
    int64_t line = 1;  // where it begins
    std::vector<std::string> fields;
    bool closed = true;  // false: a quote is not closed, and what follows cannot be made out
  };
  // Empty lines are no rows. Nothing at the end.
  std::optional<Row> next();

 private:
  std::string quoted_field(Row& row);
  std::string plain_field();
  bool is_quoted() const;
  bool at_end_of_field() const;

  std::string_view from(size_t position) const { return std::string_view(text_).substr(position); }

  std::string text_;
  char separator_;
  size_t position_ = 0;
  int64_t line_ = 1;
};

}  // namespace veil::data
