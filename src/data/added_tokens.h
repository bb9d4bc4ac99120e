// Tokens that are found in the text itself, before it is normalized and split: special tokens and others that a
// tokenizer.json adds to its vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/pattern.h"

namespace veil::data {

struct AddedToken {
  int32_t token = 0;
  std::string content;
  bool special = false;
  bool strip_left = false, strip_right = false;  // takes the white space beside it along
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }

  struct Part {
    Span span;
    int32_t token = -1;  // -1: text
  };
  // Cuts `text` into added tokens and what lies between: the leftmost match, and of several the longest.
  std::vector<Part> split(std::string_view text) const;

 private:
  const AddedToken* match_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;                       // by content, so that those of one first byte stand together
  std::array<std::pair<size_t, size_t>, 256> by_first_;  // range of tokens_ that begin with a byte
};

}  // namespace veil::data
