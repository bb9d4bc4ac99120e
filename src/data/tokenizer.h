// Text to tokens and back: BPE from a Hugging Face tokenizer.json, byte-level (Llama 3, Qwen,
// GPT-2, SmolLM2, RoBERTa) or as SentencePiece has it (Mistral, Gemma, Phi-3), or plain bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/span.h"

namespace veil::data {

// What a token store keeps of the tokenizer that made it.
struct TokenizerIdentity {
  std::string name;             // "byte", or the folder's or file's name
  std::string hash;             // 16 hexadecimal digits; equal for equal tokenizer.json files
  int64_t vocabulary_size = 0;  // all tokens lie below it
  std::optional<int32_t> begin_of_text, end_of_text, padding;
};

struct EncodedText {
  std::vector<int32_t> tokens;
  // [tokens]: the bytes of the text that each stands for, whole characters. Tokens that are put
  // around the text have none of it: they are empty and lie at its begin or end.
  std::vector<Span> spans;
};

// Any number of threads may use one Tokenizer at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual const TokenizerIdentity& identity() const = 0;

  // `text` is UTF-8 (UserError otherwise). Added tokens in it are always recognised; `add_special`
  // puts those around it that the file's template names, such as Llama 3's <|begin_of_text|>.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special) const = 0;
  // The same tokens, and where each of them comes from.
  virtual EncodedText encode_with_spans(std::string_view text, bool add_special) const = 0;
  // Two texts as the file's template for pairs joins them; one behind the other without a template,
  // with the end of text between them by bytes.
  virtual std::vector<int32_t> encode_pair(std::string_view first,
                                           std::string_view second) const = 0;
  // One line about bytes or characters that had no token and were dropped since it was loaded; ""
  // if there were none.
  virtual std::string dropped_notice() const { return ""; }

  // Special tokens are kept; bytes that are not UTF-8 become U+FFFD. UserError for a token that the
  // vocabulary lacks.
  virtual std::string decode(const std::vector<int32_t>& tokens) const = 0;
};

// `path` is a tokenizer.json, a folder that holds one, or the word "byte" or "bytes". UserError in
// one line for what is not BPE of these kinds; MissingBackend in a build without PCRE2.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Tokens 0 to 255 are the bytes, 256 is <|endoftext|>, 257 is padding. Takes any bytes.
std::unique_ptr<Tokenizer> byte_tokenizer();

}  // namespace veil::data
