// Training samples cut from a token store, each reached by its number. Nothing is copied until a
// sample is filled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/names.h"
#include "data/token_store.h"
#include "data/users.h"

namespace veil::data {

enum class SampleKind {
  // T + 1 tokens of the stream of all documents, each followed by the end of text; a sample may
  // span several
  packed,
  // one document, its end of text included, cut at T + 1 tokens: the unit of privacy is a document
  document,
  labelled,  // one document, cut at T tokens, and its label
};
const NameTable<SampleKind>& names(SampleKind);

enum class Split { all, train, held_out };
const NameTable<Split>& names(Split);

inline constexpr int64_t kIgnoredTarget = -100;

// Decided by the text alone: adding or removing a document moves no other, and equal texts fall on
// the same side.
bool is_held_out(uint64_t text_hash, double fraction);

struct SampleOptions {
  SampleKind kind = SampleKind::packed;
  int64_t length = 0;  // T
  Split split = Split::all;
  double held_out_fraction = 0;
  // of the documents: users are held out as a whole, whatever their texts
  std::shared_ptr<const Owners> owners = nullptr;
  // instead of the store's own, if they are set; Samples::options() has those that are taken
  std::optional<int32_t> end_of_text = {}, padding = {};
  bool may_be_empty = false;  // no sample at all is then no error
};

struct CutText {
  int64_t documents = 0, tokens = 0;
  int64_t all_tokens = 0;  // of all documents, ends of text included
};

struct TrainedTokens {
  int64_t tokens = 0;   // that are targets, of all samples
  int64_t without = 0;  // samples that have none: their loss is 0, and they move no parameter
};

class Samples {
 public:
  // UserError if there is not one sample, unless options.may_be_empty.
  Samples(std::shared_ptr<const TokenStore> store, const SampleOptions& options);

  int64_t count() const { return count_; }
  int64_t length() const { return options_.length; }
  // per sample
  int64_t targets() const { return options_.kind == SampleKind::labelled ? 1 : options_.length; }
  const SampleOptions& options() const { return options_; }
  const TokenStore& store() const { return *store_; }
  // Those of the split; sample s is made of documents()[s], unless samples are packed.
  const std::vector<int64_t>& documents() const { return documents_; }

  // What the length leaves out: documents that are longer than a sample, and their tokens beyond
  // it. Nothing is left out of a packed stream but its end.
  CutText cut_text() const;
  // Of a masked store's samples; nothing for others.
  TrainedTokens trained_tokens() const;
  // Samples that one document can be part of.
  int64_t longest_span() const;

  // inputs [T], targets [T] or [1] (the label). Padding is on the right: the tokenizer's
  // padding token (else its end of text, else 0), and kIgnoredTarget, which also stands for a
  // token that is not trained on. Answers how many inputs are real. Any number of threads at once.
  int64_t fill(int64_t sample, int64_t* inputs, int64_t* targets) const;
  // The same shape, all padding: a sample that is none. The label is kIgnoredTarget.
  void fill_padding(int64_t* inputs, int64_t* targets) const;

 private:
  void stream(int64_t first, int64_t count, int64_t* tokens) const;
  int64_t size_with_end(int64_t document) const;
  // Of the document's first tokens: 1 for those that are trained on, as an end of text that is added
  // always is.
  void copy_trained(int64_t document, int64_t count, uint8_t* trained) const;
  // As many of the document's first tokens, the end of text included, as `limit` allows; answers
  // how many.
  int64_t document_tokens(int64_t document, int64_t limit, int64_t* tokens) const;

  std::shared_ptr<const TokenStore> store_;
  SampleOptions options_;
  std::vector<int64_t> documents_;  // those of the split
  std::vector<int64_t> starts_;     // packed: where each begins in the stream, and the stream's end
  int64_t count_ = 0;
};

}  // namespace veil::data
