// Documents to tokens on threads of their own: one reads, several encode, and the caller's thread
// takes the results in the documents' order, so that what comes out does not depend on how many
// there are.
#pragma once

#include <functional>
#include <memory>

#include "data/corpus.h"
#include "data/token_store.h"
#include "data/tokenizer.h"
#include "data/users.h"

namespace veil::data {

struct EncodeOptions {
  bool add_special = true;   // what the tokenizer's template puts around each document
  int threads = 0;           // that encode; 0: one per core
  bool digest_text = false;  // each document gets the SHA-256 of its text
  RecognisedChat chat = {};  // that load_data renders conversations with
};

struct EncodeProgress {
  int64_t read_bytes = 0, file_bytes = 0, documents = 0, tokens = 0;
};

// Reads `corpus` to its end. At most a few MiB of text per thread wait in between. `progress` is
// called on the caller's thread, several times a MiB.
void encode_corpus(Corpus& corpus, const Tokenizer& tokenizer, const EncodeOptions& options,
                   StoreSink& sink,
                   const std::function<void(const EncodeProgress&)>& progress = {});

// What `train` and others read: a token store that `veil tokenize` wrote, mapped, or a folder,
// encoded into memory now. A store has its tokens; `tokenizer` (null: none is given) is then
// only checked, and a folder needs one. `bad` is called with what --skip-bad left out. With a
// corpus.user_key, `owners` gets each document's owner. UserError for a folder without one
// document, and for a store if users are requested: it has none.
std::shared_ptr<const TokenStore> load_data(const std::string& path, const Tokenizer* tokenizer,
                                            const CorpusOptions& corpus,
                                            const EncodeOptions& options,
                                            const std::function<void(const Corpus&)>& bad = {},
                                            Owners* owners = nullptr);

// Whether a record of the data is a sample of its own, as conversations are; plain text is not.
// Reads the first record; false if there is no such path.
bool one_sample_a_record(const std::string& path, const CorpusOptions& corpus);

// The header of a store that `tokenizer` will fill: with plain text, or with what a corpus holds.
StoreHeader store_header(const Tokenizer& tokenizer, const CorpusOptions& corpus,
                         const EncodeOptions& options);
StoreHeader corpus_header(const Tokenizer& tokenizer, Corpus& corpus, const CorpusOptions& wanted,
                          const EncodeOptions& options);

// The tokens of a document. `masked`: which of them are trained on is noted.
EncodedDocument encode_document(const Document& document, const Tokenizer& tokenizer, bool masked,
                                const EncodeOptions& options);

}  // namespace veil::data
