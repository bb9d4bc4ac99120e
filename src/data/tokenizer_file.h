// What a Hugging Face tokenizer.json says, checked and in plain fields. Only byte-level BPE gets through.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/tokenizer.h"

namespace veil::data {

// One pre-tokenizer: it sees each piece that the one before it made.
struct SplitRule {
  bool prefix_space = false;  // puts a space before a piece that does not begin with one
  std::string expression;     // matches and what lies between them become pieces; "" leaves the piece whole
};

struct TokenizerFile {
  TokenizerIdentity identity;
  std::unordered_map<std::string, int32_t> vocabulary;  // by the bytes that a token stands for
  std::array<int32_t, 256> token_of_byte{};
  std::vector<Merge> merges;
  bool whole_pieces_first = false;                  // ignore_merges: a piece that the vocabulary holds is one token
  bool nfc = false;                                 // of text, after the added tokens are found
  std::vector<SplitRule> splits;                    // in order
  std::vector<AddedToken> added, added_normalized;  // those looked for in the text as given, and in the normalized one
  std::vector<int32_t> before, after;               // what the template puts around a text
  std::vector<std::string> bytes_of_token;          // by token
  std::vector<bool> known;                          // by token: the file may leave gaps
};

// `path` is the file or its folder; bos, eos and padding come from the tokenizer_config.json beside it, or are known by
// their names. UserError in one line for what cannot be read or is of another kind.
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace veil::data
