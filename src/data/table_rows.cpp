#include "data/table_rows.h"

namespace veil::data {

bool TableRows::at_end_of_field() const {
  return position_ >= text_.size() || text_[position_] == separator_ || text_[position_] == '\n' ||
         from(position_).starts_with("\r\n");
}

// Whether the field at the position is in quotes.
bool TableRows::is_quoted() const {
  if (position_ >= text_.size() || text_[position_] != '"') return false;
  if (separator_ != '\t') return true;
  for (size_t at = position_ + 1; at < text_.size() && text_[at] != '\n'; ++at) {
    if (text_[at] != '"') continue;
    const char next = at + 1 < text_.size() ? text_[at + 1] : '\n';
    if (next != '"') return next == '\t' || next == '\n' || next == '\r';
    ++at;
  }
  return false;
}

std::string TableRows::quoted_field(Row& row) {
  std::string field;
  for (++position_; position_ < text_.size(); ++position_) {
    const char letter = text_[position_];
    if (letter == '"') {
      if (!from(position_ + 1).starts_with('"')) {
        ++position_;
        return field;
      }
      ++position_;
    }
    line_ += letter == '\n';
    field += letter;
  }
  row.closed = false;
  return field;
}

std::string TableRows::plain_field() {
  const size_t begin = position_;
  while (!at_end_of_field()) ++position_;
  return text_.substr(begin, position_ - begin);
}

std::optional<TableRows::Row> TableRows::next() {
  while (position_ < text_.size() && (text_[position_] == '\n' || text_[position_] == '\r'))
    line_ += text_[position_++] == '\n';
  if (position_ >= text_.size()) return {};
  Row row{.line = line_, .fields = {}};
  while (true) {
    std::string field = is_quoted() ? quoted_field(row) : plain_field();
    // letters behind a closing quote belong to the field
    if (!at_end_of_field()) field += plain_field();
    row.fields.push_back(std::move(field));
    if (position_ >= text_.size()) return row;
    const char letter = text_[position_];
    if (letter == separator_) {
      ++position_;
      continue;
    }
    if (letter == '\r') ++position_;
    ++position_;
    ++line_;
    return row;
  }
}

}  // namespace veil::data
