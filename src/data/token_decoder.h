// From tokens' texts, as the vocabulary has them, to the text that they stand for: the decoders of
// a tokenizer.json, one after the other.
#pragma once

#include <string>
#include <vector>

namespace veil::data {

struct DecoderRule {
  enum class Kind {
    byte_level,     // all tokens' bytes together; ill-formed ones become U+FFFD
    replace,        // `pattern` by `content` in every token
    byte_fallback,  // a run of <0xNN> becomes its text, or one U+FFFD for each if it is none
    fuse,           // all become one
    strip,          // up to `begin` and `end` times `content`, a character, from the ends of each
    metaspace,      // `pattern` by a space, and by nothing in the first token if `begin` is 1
  };
  Kind kind = Kind::byte_level;
  std::string pattern = {}, content = {};
  int begin = 0, end = 0;
};

std::string decode_tokens(std::vector<std::string> tokens, const std::vector<DecoderRule>& rules);

}  // namespace veil::data
