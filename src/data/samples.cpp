#include "data/samples.h"

#include <algorithm>

#include "base/error.h"

namespace veil::data {

const NameTable<SampleKind>& names(SampleKind) {
  static const NameTable<SampleKind> table = {{SampleKind::packed, "packed"},
                                              {SampleKind::document, "document"},
                                              {SampleKind::labelled, "labelled", {"label"}}};
  return table;
}

const NameTable<Split>& names(Split) {
  static const NameTable<Split> table = {{Split::all, "all"},
                                         {Split::train, "train"},
                                         {Split::held_out, "held-out", {"eval", "validation"}}};
  return table;
}

bool is_held_out(uint64_t text_hash, double fraction) {
  return static_cast<double>(text_hash >> 11) * 0x1p-53 < fraction;
}

Samples::Samples(std::shared_ptr<const TokenStore> store, const SampleOptions& options)
    : store_(std::move(store)), options_(options) {
  const StoreHeader& header = store_->header();
  if (!options_.end_of_text) options_.end_of_text = header.tokenizer.end_of_text;
  if (!options_.padding) options_.padding = header.tokenizer.padding;
  if (options_.length < 1) field_error("seq_length", "must be at least 1, got {}", options_.length);
  if (!(options_.held_out_fraction >= 0 && options_.held_out_fraction < 1)) {
    field_error("held_out", "must be from 0 to less than 1, got {}", options_.held_out_fraction);
  }
  if (options_.kind == SampleKind::labelled && !header.labelled) {
    field_error("label_key", "is missing: the documents have no labels without it");
  }
  if (options_.kind == SampleKind::packed && header.masked)
    field_error("samples",
                "packed: a loss on replies needs one conversation per sample; allowed is `samples` "
                "document, or `loss_on` all");
  // tokens that make an input and a target
  const int64_t least = options_.kind == SampleKind::document ? 2 : 1;
  for (int64_t document = 0; document < header.documents; ++document) {
    const uint64_t hash =
        options_.owners ? options_.owners->hash(document) : store_->hash(document);
    const bool held_out = is_held_out(hash, options_.held_out_fraction);
    if (options_.split != Split::all && held_out != (options_.split == Split::held_out)) continue;
    const int64_t size =
        options_.kind == SampleKind::labelled ? store_->size(document) : size_with_end(document);
    if (size >= least) documents_.push_back(document);
  }
  count_ = static_cast<int64_t>(documents_.size());
  if (options_.kind == SampleKind::packed) {
    starts_.push_back(0);
    for (const int64_t document : documents_)
      starts_.push_back(starts_.back() + size_with_end(document));
    count_ = (starts_.back() - 1) / options_.length;
  }
  count_ = std::max<int64_t>(0, count_);
  if (count_ > 0 || options_.may_be_empty) return;
  const std::string side =
      options_.split == Split::all ? "" : fmt::format(" in the {} part", name_of(options_.split));
  if (options_.kind == SampleKind::packed && !documents_.empty()) {
    field_error("seq_length",
                "{}: the data has {} tokens{}, fewer than one sequence and its target; give more "
                "data, or a smaller `seq_length`",
                options_.length, starts_.back(), side);
  }
  field_error("held_out",
              "{} leaves no document{} (of {}): give more documents, or another fraction",
              options_.held_out_fraction, side, header.documents);
}

CutText Samples::cut_text() const {
  CutText cut;
  if (options_.kind == SampleKind::packed) return cut;
  const bool labelled = options_.kind == SampleKind::labelled;
  const int64_t room = labelled ? options_.length : options_.length + 1;
  for (const int64_t document : documents_) {
    const int64_t size = labelled ? store_->size(document) : size_with_end(document);
    cut.all_tokens += size;
    if (size <= room) continue;
    ++cut.documents;
    cut.tokens += size - room;
  }
  return cut;
}

void Samples::copy_trained(int64_t document, int64_t count, uint8_t* trained) const {
  const int64_t stored = std::min(count, store_->size(document));
  store_->copy_trained(document, 0, stored, trained);
  std::fill_n(trained + stored, count - stored, uint8_t{1});
}

TrainedTokens Samples::trained_tokens() const {
  TrainedTokens all;
  if (!store_->header().masked) return all;
  std::vector<uint8_t> trained(static_cast<size_t>(options_.length) + 1);
  for (const int64_t document : documents_) {
    const int64_t size = std::min(size_with_end(document), options_.length + 1);
    copy_trained(document, size, trained.data());
    // the first token is no target
    const int64_t targets = std::count(trained.begin() + 1, trained.begin() + size, uint8_t{1});
    all.tokens += targets;
    all.without += targets == 0;
  }
  return all;
}

int64_t Samples::longest_span() const {
  if (options_.kind != SampleKind::packed) return 1;
  int64_t longest = 0;
  for (size_t i = 0; i < documents_.size(); ++i) {
    // Sample s reads the tokens from s T to s T + T, the last one as a target only.
    const int64_t begin = starts_[i], end = starts_[i + 1], length = options_.length;
    const int64_t first = std::max<int64_t>(0, (begin + length - 1) / length - 1),
                  last = std::min(count_ - 1, (end - 1) / length);
    longest = std::max(longest, last - first + 1);
  }
  return longest;
}

int64_t Samples::size_with_end(int64_t document) const {
  return store_->size(document) + (options_.end_of_text && !store_->header().ended ? 1 : 0);
}

int64_t Samples::document_tokens(int64_t document, int64_t limit, int64_t* tokens) const {
  const int64_t size = store_->size(document), copied = std::min(size, limit);
  store_->copy(document, 0, copied, tokens);
  const auto& end = options_.end_of_text;
  if (copied == limit || !end || store_->header().ended) return copied;
  tokens[copied] = *end;
  return copied + 1;
}

void Samples::stream(int64_t first, int64_t count, int64_t* tokens) const {
  size_t at = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                  starts_.begin()) -
              1;
  while (count > 0) {
    const int64_t document = documents_[at], skipped = first - starts_[at],
                  size = store_->size(document);
    const int64_t copied = std::min(count, std::max<int64_t>(0, size - skipped));
    if (copied > 0) store_->copy(document, skipped, copied, tokens);
    tokens += copied;
    count -= copied;
    if (count > 0 && starts_[at + 1] - starts_[at] > size) {
      *tokens++ = *options_.end_of_text;
      --count;
    }
    first = starts_[++at];
  }
}

void Samples::fill_padding(int64_t* inputs, int64_t* targets) const {
  const int64_t padding = options_.padding ? *options_.padding : options_.end_of_text.value_or(0);
  std::fill_n(inputs, length(), padding);
  std::fill_n(targets, this->targets(), kIgnoredTarget);
}

int64_t Samples::fill(int64_t sample, int64_t* inputs, int64_t* targets) const {
  VEIL_CHECK(sample >= 0 && sample < count_, "sample {} of {}", sample, count_);
  const int64_t length = options_.length;
  std::vector<int64_t> tokens(static_cast<size_t>(length + 1));
  if (options_.kind == SampleKind::packed) {
    stream(sample * length, length + 1, tokens.data());
    std::copy_n(tokens.begin(), length, inputs);
    std::copy_n(tokens.begin() + 1, length, targets);
    return length;
  }
  fill_padding(inputs, targets);
  const int64_t document = documents_[static_cast<size_t>(sample)];
  if (options_.kind == SampleKind::labelled) {
    const int64_t size = std::min(store_->size(document), length);
    store_->copy(document, 0, size, inputs);
    targets[0] = store_->label(document);
    return size;
  }
  const int64_t size = document_tokens(document, length + 1, tokens.data());
  std::copy_n(tokens.begin(), size - 1, inputs);
  std::copy_n(tokens.begin() + 1, size - 1, targets);
  if (!store_->header().masked) return size - 1;
  std::vector<uint8_t> trained(static_cast<size_t>(size));
  copy_trained(document, size, trained.data());
  for (int64_t target = 0; target + 1 < size; ++target) {
    if (!trained[static_cast<size_t>(target + 1)]) targets[target] = kIgnoredTarget;
  }
  return size - 1;
}

}  // namespace veil::data
