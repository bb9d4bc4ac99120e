// A token store. Input that begins with "{" is the header's JSON in one line and what follows the
// header; all other input is the file as it is.
#include <cstring>

#include "data/token_store.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  constexpr size_t kHeaderBytes = 4096;
  std::string_view rest = fuzz::text_of(data, size);
  std::string file(rest);
  if (rest.starts_with("{")) {
    const std::string_view header = fuzz::take_line(rest);
    const uint32_t words[] = {header.find("\"masked\"") == std::string_view::npos ? 1u : 2u,
                              static_cast<uint32_t>(header.size())};
    file = "VEILTOKS";
    file.append(reinterpret_cast<const char*>(words), sizeof words).append(header);
    file.resize(kHeaderBytes, '\0');
    file.append(rest);
  }
  const std::string path = fuzz::input_file("tokens.bin", file);
  fuzz::allow_user_error([&] {
    const data::TokenStore store = data::TokenStore::open(path);
    int64_t total = 0;
    for (int64_t i = 0; i < store.header().documents; ++i) {
      std::vector<int64_t> tokens(static_cast<size_t>(store.size(i)));
      std::vector<uint8_t> trained(tokens.size());
      store.copy(i, 0, store.size(i), tokens.data());
      store.copy_trained(i, 0, store.size(i), trained.data());
      for (const int64_t token : tokens)
        fuzz::require(token >= 0 && token < store.header().tokenizer.vocabulary_size,
                      "tokens are in the vocabulary");
      if (store.header().labelled) store.label(i);
      total += store.size(i);
    }
    fuzz::require(total == store.header().tokens, "documents hold all tokens");
    store.digest();
    store.label_count();
    store.check_tokens();
  });
  return 0;
}
