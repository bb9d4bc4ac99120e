#include "base/error.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

namespace veil::data {
namespace {

constexpr int32_t kEndOfText = 256, kPadding = 257;

class ByteTokenizer : public Tokenizer {
 public:
  const TokenizerIdentity& identity() const override { return identity_; }

  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& tokens) const override {
    std::string bytes;
    for (const int32_t token : tokens) {
      if (token < 0 || token > kPadding) {
        user_error("token {} is beyond the vocabulary of {} (tokenizer 'byte')", token, kPadding + 1);
      }
      if (token < kEndOfText) {
        bytes.push_back(static_cast<char>(token));
      } else {
        bytes += token == kEndOfText ? "<|endoftext|>" : "<|padding|>";
      }
    }
    return repair_utf8(bytes);
  }

 private:
  const TokenizerIdentity identity_{.name = "byte",
                                    .hash = "0000000000000100",
                                    .vocabulary_size = kPadding + 1,
                                    .begin_of_text = {},
                                    .end_of_text = kEndOfText,
                                    .padding = kPadding};
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace veil::data
