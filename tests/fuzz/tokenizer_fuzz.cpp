// A tokenizer.json, and a text that what it describes must be able to encode.
#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  constexpr std::string_view kText = "Hello  w\xC3\xB6rld, it's 12345\n<s> \xE2\x96\x81x e\xCC\x81";
  const std::string path = fuzz::input_file("tokenizer.json", fuzz::text_of(data, size));
  fuzz::allow_user_error([&] {
    const auto tokenizer = data::load_tokenizer(path);
    const data::EncodedText encoded = tokenizer->encode_with_spans(kText, true);
    fuzz::require(encoded.tokens == tokenizer->encode(kText, true), "spans change no token");
    fuzz::require(encoded.tokens.size() == encoded.spans.size(), "a span for each token");
    for (const auto& span : encoded.spans)
      fuzz::require(span.begin <= span.end && span.end <= kText.size(), "spans are in the text");
    for (const int32_t token : encoded.tokens)
      fuzz::require(token >= 0 && token < tokenizer->identity().vocabulary_size,
                    "tokens are in the vocabulary");
    tokenizer->encode_pair(kText, "a");
    tokenizer->decode(encoded.tokens);
  });
  return 0;
}
