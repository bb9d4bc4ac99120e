// What a Hugging Face tokenizer.json says, checked and in plain fields. Only byte-level BPE gets
// through.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe.h"
#include "data/pattern.h"
#include "data/tokenizer.h"

namespace veil::data {

// Tokens that are found in a text before it is cut into pieces.
struct AddedToken {
  int32_t token = 0;
  std::string content;
  bool special = false;
  bool strip_left = false, strip_right = false;  // takes the white space next to it along
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }

  struct Part {
    Span span;
    int32_t token = -1;  // -1: text
  };
  // Cuts `text` into added tokens and what lies between: the leftmost match, and of several the
  // longest.
  std::vector<Part> split(std::string_view text) const;

 private:
  const AddedToken* match_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;  // by content, so that those of one first byte stand together
  std::array<std::pair<size_t, size_t>, 256> by_first_;  // range of tokens_ that begin with a byte
};

// One pre-tokenizer: it sees each piece that the one before it made.
struct SplitRule {
  bool prefix_space = false;  // puts a space before a piece that does not begin with one
  // matches and what lies between them become pieces; "" leaves the piece whole
  std::string expression;
};

struct TokenizerFile {
  TokenizerIdentity identity;
  std::unordered_map<std::string, int32_t> vocabulary;  // by the bytes that a token stands for
  std::array<int32_t, 256> token_of_byte{};
  std::vector<Merge> merges;
  bool whole_pieces_first = false;  // ignore_merges: a piece that the vocabulary holds is one token
  bool nfc = false;                 // of text, after the added tokens are found
  std::vector<SplitRule> splits;    // in order
  // those looked for in the text as given, and in the normalized one
  std::vector<AddedToken> added, added_normalized;
  std::vector<int32_t> before, after;       // what the template puts around a text
  std::vector<std::string> bytes_of_token;  // by token
  std::vector<bool> known;                  // by token: the file may leave gaps
};

// `path` is the file or its folder; bos, eos and padding come from the tokenizer_config.json beside
// it, or are known by their names. UserError in one line for what cannot be read or is of another
// kind.
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace veil::data
