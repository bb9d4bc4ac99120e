// Documents as tokens, one after the other: in memory, or in a file that is mapped and read where
// it lies.
//
// The file, little-endian: 4096 bytes of header ("VEILTOKS", version and length of the JSON that
// follows as uint32, then zeros); tokens, uint16 if the vocabulary allows it, else uint32; from
// the next multiple of 8 on the documents' first tokens and the end [documents + 1] as uint64, the
// hashes of their texts [documents] as uint64 and, if they are labelled, the labels [documents]
// as int32. Where only replies are trained on, a byte for each token follows [tokens], 1 for those
// that are. A file of anything but plain text is of version 2.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "data/tokenizer.h"

namespace veil::data {

struct StoreHeader {
  TokenizerIdentity tokenizer;
  bool special_added = false;  // each document carries what the tokenizer's template puts around it
  bool labelled = false;
  int64_t documents = 0, tokens = 0;
  int64_t text_bytes = 0;  // of the documents before they were encoded
  bool masked = false;     // it is known of each token whether it is trained on
  bool ended = false;      // a template has ended the documents: no end of text is added
  // of data that is not plain text: what it was, and how conversations were rendered
  std::string format = {}, chat_template = {};
};

struct EncodedDocument {
  std::vector<int32_t> tokens;
  uint64_t hash = 0;  // content_hash of the text: decides which side of a split it is on
  int64_t text_bytes = 0;
  std::optional<int32_t> label;
  std::optional<Sha256Digest> text_digest = {};  // of all documents or of none
  std::string user = {};                         // a store does not keep it
  std::vector<uint8_t> trained = {};             // [tokens] of a masked store
};

class TokenStore {
 public:
  // Maps the file. UserError in one line if it is no token store, is cut short or contradicts
  // itself.
  static TokenStore open(const std::string& path);
  TokenStore(TokenStore&&) noexcept;
  TokenStore& operator=(TokenStore&&) noexcept;
  ~TokenStore();

  const StoreHeader& header() const { return header_; }
  int64_t size(int64_t document) const;  // tokens
  uint64_t hash(int64_t document) const { return hashes_[static_cast<size_t>(document)]; }
  int32_t label(int64_t document) const;
  int32_t label_count() const;  // the largest label and one; 0 without labels

  // Copies tokens [first, first + count) of a document. UserError for one that is beyond the
  // vocabulary.
  void copy(int64_t document, int64_t first, int64_t count, int64_t* tokens) const;

  // Of tokens [first, first + count): 1 for those that are trained on. All are without a mask.
  void copy_trained(int64_t document, int64_t first, int64_t count, uint8_t* trained) const;

  // Of everything that samples are made from, computed from the bytes as they are now: all tokens,
  // where documents begin, masks, labels, what decides the split and, of data in memory, the texts. Nobody
  // can make two data sets with the same one.
  Sha256Digest digest() const;
  // Reads every token: UserError that names the first one beyond the vocabulary and its place.
  void check_tokens() const;
  // UserError unless a model with so many rows of embeddings has one for each token.
  void require_vocabulary(int64_t rows) const;
  // UserError unless this tokenizer made it.
  void require_tokenizer(const TokenizerIdentity& tokenizer) const;

 private:
  friend class StoreInMemory;
  struct Backing;
  TokenStore() = default;

  std::string name_;
  StoreHeader header_;
  std::unique_ptr<Backing> backing_;
  const uint16_t* short_tokens_ = nullptr;  // one of the two
  const uint32_t* long_tokens_ = nullptr;
  std::span<const uint64_t> offsets_, hashes_;
  std::span<const int32_t> labels_;
  std::span<const uint8_t> trained_;
};

// Where encoded documents go, in order.
class StoreSink {
 public:
  virtual ~StoreSink() = default;
  virtual void append(const EncodedDocument& document) = 0;
};

class StoreInMemory : public StoreSink {
 public:
  explicit StoreInMemory(StoreHeader header);  // counts are filled in
  ~StoreInMemory() override;
  void append(const EncodedDocument& document) override;
  TokenStore finish();

 private:
  std::unique_ptr<TokenStore::Backing> backing_;
  StoreHeader header_;
  Sha256 texts_;
  int64_t texts_hashed_ = 0;
};

// Tokens are written as they come; the file appears under its name in finish(), whole, or not at
// all.
class StoreFile : public StoreSink {
 public:
  StoreFile(const std::string& path, StoreHeader header);
  ~StoreFile() override;
  void append(const EncodedDocument& document) override;
  StoreHeader finish();

 private:
  void flush();
  void write_at(int64_t place, const void* bytes, size_t count);

  std::string path_, temporary_;
  int descriptor_ = -1;
  StoreHeader header_;
  std::vector<char> buffer_;
  int64_t written_;
  std::vector<uint64_t> offsets_{0}, hashes_;
  std::vector<int32_t> labels_;
  std::vector<uint8_t> trained_;
};

// Whether a file begins as a token store does.
bool is_token_store(const std::string& path);

}  // namespace veil::data
