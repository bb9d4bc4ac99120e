#include "data/overview.h"

#include <algorithm>

#include "base/error.h"
#include "data/samples.h"

namespace veil::data {
namespace {

constexpr int64_t kBins = 12;

// Widths of 1, 2 or 5 times a power of ten, so that at most kBins are needed.
std::vector<LengthBin> length_bins(const std::vector<int64_t>& sorted) {
  if (sorted.empty()) return {};
  int64_t width = 1;
  for (int step = 0; sorted.back() / width >= kBins; ++step)
    width = step % 3 == 1 ? width * 5 / 2 : width * 2;
  std::vector<LengthBin> bins;
  for (int64_t from = 0; from <= sorted.back(); from += width)
    bins.push_back({from, from + width - 1, 0});
  for (const int64_t length : sorted) ++bins[static_cast<size_t>(length / width)].documents;
  return bins;
}

void add_marked(std::vector<MarkedText>& text, const std::string& part, bool trained, bool cut) {
  if (part.empty()) return;
  trained = trained && !cut;
  if (text.empty() || text.back().trained != trained || text.back().cut != cut)
    text.push_back({"", trained, cut});
  text.back().text += part;
}

// The document's own text, marked by the tokens that cover it.
std::vector<MarkedText> marked_document(const Document& document, const Tokenizer& tokenizer,
                                        bool masked, const EncodeOptions& options, int64_t room) {
  const std::string& text = document.text;
  const EncodedText encoded =
      tokenizer.encode_with_spans(text, options.add_special && !document.whole);
  const EncodedDocument marks = encode_document(document, tokenizer, masked, options);
  std::vector<uint8_t> trained(text.size(), masked ? 0 : 1), cut(text.size(), 0);
  for (size_t token = 0; token < encoded.tokens.size(); ++token) {
    for (size_t at = encoded.spans[token].begin; at < encoded.spans[token].end; ++at) {
      if (masked && marks.trained[token]) trained[at] = 1;
      if (static_cast<int64_t>(token) >= room) cut[at] = 1;
    }
  }
  std::vector<MarkedText> result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && trained[end] == trained[at] && cut[end] == cut[at]) ++end;
    add_marked(result, text.substr(at, end - at), trained[at] != 0, cut[at] != 0);
    at = end;
  }
  return result;
}

// Of a token store there is no text: its tokens are decoded, each stretch of equal marks alone.
std::vector<MarkedText> marked_tokens(const TokenStore& store, int64_t document,
                                      const Tokenizer& tokenizer, int64_t room) {
  const int64_t size = store.size(document);
  std::vector<int64_t> tokens(static_cast<size_t>(size));
  std::vector<uint8_t> trained(static_cast<size_t>(size));
  store.copy(document, 0, size, tokens.data());
  store.copy_trained(document, 0, size, trained.data());
  std::vector<MarkedText> result;
  for (int64_t at = 0; at < size;) {
    std::vector<int32_t> run;
    const bool mark = trained[static_cast<size_t>(at)] != 0, cut = at >= room;
    for (; at < size && (trained[static_cast<size_t>(at)] != 0) == mark && (at >= room) == cut;
         ++at)
      run.push_back(static_cast<int32_t>(tokens[static_cast<size_t>(at)]));
    add_marked(result, tokenizer.decode(run), mark, cut);
  }
  return result;
}

// From the first to the last, evenly.
std::vector<int64_t> shown_documents(int64_t documents, int64_t show) {
  const int64_t count = std::min(show, documents);
  std::vector<int64_t> chosen;
  for (int64_t index = 0; index < count; ++index)
    chosen.push_back(count == 1 ? 0 : index * (documents - 1) / (count - 1));
  return chosen;
}

void count_documents(const TokenStore& store, int64_t seq_length, DataOverview& overview) {
  const StoreHeader& header = store.header();
  const int64_t end = header.tokenizer.end_of_text && !header.ended && !header.labelled ? 1 : 0;
  const int64_t room = header.labelled ? seq_length : seq_length + 1;
  std::vector<int64_t> lengths;
  std::vector<uint8_t> trained;
  for (int64_t document = 0; document < header.documents; ++document) {
    const int64_t size = store.size(document);
    lengths.push_back(size + end);
    overview.tokens += size + end;
    overview.cut_documents += size + end > room;
    overview.cut_tokens += std::max<int64_t>(0, size + end - room);
    if (header.labelled) {
      const auto label = static_cast<size_t>(store.label(document));
      if (overview.labels.size() <= label) overview.labels.resize(label + 1);
      ++overview.labels[label];
    }
    if (!header.masked) continue;
    trained.resize(static_cast<size_t>(size));
    store.copy_trained(document, 0, size, trained.data());
    trained.resize(static_cast<size_t>(size + end), uint8_t{1});  // an end is trained on
    overview.trained_tokens += std::count(trained.begin(), trained.end(), uint8_t{1});
    // the first token is no target
    const auto last = trained.begin() + std::min(size + end, room);
    overview.untrained_documents +=
        size + end < 2 || std::find(trained.begin() + 1, last, uint8_t{1}) == last;
  }
  if (!header.masked) overview.trained_tokens = overview.tokens;
  std::sort(lengths.begin(), lengths.end());
  if (lengths.empty()) return;
  overview.shortest = lengths.front();
  overview.median = lengths[lengths.size() / 2];
  overview.longest = lengths.back();
  overview.lengths = length_bins(lengths);
}

ShownSample shown_sample(const TokenStore& store, int64_t document) {
  ShownSample sample;
  sample.document = document;
  sample.tokens = store.size(document);
  std::vector<uint8_t> trained(static_cast<size_t>(sample.tokens));
  store.copy_trained(document, 0, sample.tokens, trained.data());
  sample.trained_tokens = std::count(trained.begin(), trained.end(), uint8_t{1});
  if (store.header().labelled) sample.label = store.label(document);
  return sample;
}

}  // namespace

DataOverview data_overview(const std::string& path, const Tokenizer* tokenizer,
                           const CorpusOptions& corpus_options, const EncodeOptions& encode,
                           int64_t seq_length, int64_t show) {
  DataOverview overview;
  overview.seq_length = seq_length;
  const bool stored = is_token_store(path);
  const auto store = load_data(path, tokenizer, corpus_options, encode);
  const StoreHeader& header = store->header();
  overview.counts.documents = header.documents;
  overview.tokenizer = header.tokenizer.name;
  overview.format = header.format.empty() ? "text" : header.format;
  overview.chat_template = header.chat_template;
  overview.loss_on = name_of(header.masked ? LossOn::replies : LossOn::all);
  count_documents(*store, seq_length, overview);
  const int64_t room = header.labelled ? seq_length : seq_length + 1;
  const std::vector<int64_t> chosen = shown_documents(header.documents, show);
  if (stored) {
    for (const int64_t document : chosen) {
      overview.samples.push_back(shown_sample(*store, document));
      if (tokenizer)
        overview.samples.back().text = marked_tokens(*store, document, *tokenizer, room);
    }
    return overview;
  }
  // A second reading brings the texts of those that are shown.
  Corpus corpus(path, corpus_options, encode.chat);
  size_t next = 0;
  for (int64_t index = 0; const auto document = corpus.next(); ++index) {
    if (next == chosen.size() || chosen[next] != index) continue;
    ++next;
    ShownSample sample = shown_sample(*store, index);
    sample.file = document->file;
    sample.line = document->line;
    if (document->second) {
      add_marked(sample.text, document->text + "\n" + *document->second, true, false);
    } else {
      sample.text = marked_document(*document, *tokenizer, header.masked, encode, room);
    }
    overview.samples.push_back(std::move(sample));
  }
  overview.counts = corpus.counts();
  return overview;
}

}  // namespace veil::data
