#include "data/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "data/utf8.h"

namespace veil::data {
namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t space_before(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    size_t begin = end - 1;
    while (begin > floor && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t position = begin;
    if (!is_space(next_character(text, position))) break;
    end = begin;
  }
  return end;
}

size_t space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t position = begin;
    if (!is_space(next_character(text, position))) break;
    begin = position;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  // The longest of those that begin alike comes first: descending order puts a word before its own prefixes.
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content > b.content; });
  by_first_.fill({0, 0});
  for (size_t index = 0; index < tokens_.size(); ++index) {
    VEIL_CHECK(!tokens_[index].content.empty(), "an added token without content");
    auto& range = by_first_[static_cast<uint8_t>(tokens_[index].content[0])];
    if (range.second == 0) range.first = index;
    range.second = index + 1;
  }
}

const AddedToken* AddedTokens::match_at(std::string_view text, size_t position) const {
  const auto [first, last] = by_first_[static_cast<uint8_t>(text[position])];
  for (size_t index = first; index < last; ++index) {
    if (text.substr(position).starts_with(tokens_[index].content)) return &tokens_[index];
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t position = 0; position < text.size();) {
    const AddedToken* const found = match_at(text, position);
    if (!found) {
      ++position;
      continue;
    }
    const size_t end_of_match = position + found->content.size();
    const size_t begin = found->strip_left ? space_before(text, position, done) : position;
    const size_t end = found->strip_right ? space_after(text, end_of_match) : end_of_match;
    if (begin > done) parts.push_back({{done, begin}, -1});
    parts.push_back({{begin, end}, found->token});
    done = position = end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace veil::data
