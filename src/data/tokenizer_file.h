// What a Hugging Face tokenizer.json says, checked and in plain fields. Only BPE gets through,
// byte-level or as SentencePiece has it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe.h"
#include "data/normalizer.h"
#include "data/pattern.h"
#include "data/token_decoder.h"
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
  // Cuts `text` into added tokens and what is between: the leftmost match, and of several the
  // longest.
  std::vector<Part> split(std::string_view text) const;

 private:
  const AddedToken* match_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;  // by content, so that those of one first byte stand together
  std::array<std::pair<size_t, size_t>, 256> by_first_;  // range of tokens_ that begin with a byte
};

// What becomes of a match where a text is cut.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// One pre-tokenizer: it sees each piece that the one before it made.
struct SplitRule {
  bool prefix_space = false;  // puts a space before a piece that does not begin with one
  // matches and what is between them become pieces; "" leaves the piece whole
  std::string expression = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool inverted = false;  // what is between the matches counts as the matches
  // Metaspace: instead of spaces; also put before the piece, as `prepend` says. "": none of it
  enum class Prepend { never, first, always };
  std::string space = {};
  Prepend prepend = Prepend::never;
};

// A part of what the post-processor makes of one text or of a pair.
struct TemplatePart {
  enum class Kind { token, text, second_text };
  Kind kind = Kind::text;
  int32_t token = -1;
};

struct TokenizerFile {
  TokenizerIdentity identity;
  // by the bytes that a token stands for, or of BPE that is not byte-level by its text
  std::unordered_map<std::string, int32_t> vocabulary;
  FirstTokens first;
  std::vector<Merge> merges;
  bool whole_pieces_first = false;  // ignore_merges: a piece that the vocabulary holds is one token
  std::vector<NormalizerRule> normalizers;  // of text, after the added tokens are found
  std::vector<SplitRule> splits;            // in order
  // those looked for in the text as given, and in the normalized one
  std::vector<AddedToken> added, added_normalized;
  std::vector<TemplatePart> single, pair;  // what is put around a text and around a pair
  std::vector<DecoderRule> decoders;       // in order
  std::vector<std::string> text_of_token;  // by token, as the file has it
  std::vector<bool> known;                 // by token: the file may leave gaps
};

// `path` is the file or its folder; bos, eos and padding come from tokenizer_config.json next to
// it, or are known by their names. UserError in one line for what cannot be read or is of another
// kind.
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace veil::data
