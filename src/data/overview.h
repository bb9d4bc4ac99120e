// What would be trained on: counts, lengths and a few samples, for a person to look at. None of it
// is private.
#pragma once

#include <string>
#include <vector>

#include "data/encode.h"

namespace veil::data {

// A part of a sample's text; neighbours differ in one of the two.
struct MarkedText {
  std::string text;
  bool trained = false;
  bool cut = false;  // beyond the sequence's length, and so not trained on
};

struct ShownSample {
  std::string file;  // "" in a token store
  int64_t line = 0, document = 0, tokens = 0, trained_tokens = 0;
  std::optional<int32_t> label;
  std::vector<MarkedText> text;
};

struct LengthBin {
  int64_t from = 0, to = 0;  // tokens, both included
  int64_t documents = 0;
};

struct DataOverview {
  CorpusCounts counts;  // of files; a token store has documents only
  std::string tokenizer, format, chat_template, loss_on;
  int64_t seq_length = 0;
  // of all documents: tokens, ends included, those that are trained on, and the lengths
  int64_t tokens = 0, trained_tokens = 0, shortest = 0, median = 0, longest = 0;
  std::vector<LengthBin> lengths;
  int64_t cut_documents = 0, cut_tokens = 0;  // beyond the sequence's length
  int64_t untrained_documents = 0;            // no token within it is trained on
  std::vector<int64_t> labels;                // documents of each label
  std::vector<ShownSample> samples;
};

// `tokenizer` may be null for a token store, which then shows no text. `show`: so many samples,
// from the first document to the last.
DataOverview data_overview(const std::string& path, const Tokenizer* tokenizer,
                           const CorpusOptions& corpus, const EncodeOptions& encode,
                           int64_t seq_length, int64_t show);

}  // namespace veil::data
