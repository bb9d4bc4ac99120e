// Which tokens begin, end and pad a model's texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "run/model_source.h"

namespace veil {

struct SpecialToken {
  int32_t id = 0;
  std::string from;  // the file that says so, or "--end-token"
  std::string text;  // the token itself; "" if no tokenizer knows it
};
// "2 </s> (config.json)"
std::string special_token_text(const SpecialToken& token);

struct SpecialTokens {
  std::optional<SpecialToken> begin, end, padding;
  // All that end a text when one is generated: `end`, and the others that its file lists.
  std::vector<int32_t> ends;
};

// As transformers decides: generation_config.json, then config.json, then the tokenizer's own
// (tokenizer_config.json). A classifier's padding is its config.json's first, for its weights were
// made with it. Of several end tokens the tokenizer's own is taken, otherwise the first.
//
// `own_tokenizer`: the tokenizer is the one of the model's folder; the ids of another's are not in
// the model's files. `end_token`: what the user passed, an id or the token's text; "" for nothing.
// `tokenizer` may be null (a token store). UserError in one line for an end token that there is
// not.
SpecialTokens choose_special_tokens(const ModelSource& source, bool own_tokenizer,
                                    const data::TokenizerIdentity& identity,
                                    const data::Tokenizer* tokenizer, const std::string& end_token);

}  // namespace veil
