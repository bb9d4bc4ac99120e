#include "run/text_data.h"

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "data/encode.h"
#include "models/classifier_labels.h"
#include "train/feed.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBytes = "byte";

}  // namespace

std::string tokenizer_name(const std::string& given, const ModelSource& source) {
  if (!given.empty()) return given;
  if (!source.folder.empty() && fs::exists(fs::path(source.folder) / "tokenizer.json"))
    return source.folder;
  constexpr int64_t kByteVocabulary = 512;  // one this small was made for bytes
  return source.config->vocabulary > kByteVocabulary ? "" : kBytes;
}

data::SampleKind sample_kind(const RunConfig& config, const ModelSource& source) {
  if (source.config->task == Task::sequence_classification) return data::SampleKind::labelled;
  return config.data.samples.value_or(data::SampleKind::packed);
}

std::vector<std::string> label_names(const RunConfig& config, const ModelSource& source) {
  const std::vector<std::string>& given = config.data.corpus.label_names;
  if (!given.empty()) return given;
  std::vector<std::string> own = named_labels(source.config->source);
  return std::ssize(own) == source.config->labels ? own : std::vector<std::string>();
}

TextData load_text(const RunConfig& config, ModelSource& source,
                   const std::function<void(const std::string&)>& left_out) {
  VEIL_CHECK(source.config, "text for a model that reads none");
  const std::string& path = config.data.path;
  const bool store = fs::is_regular_file(path) && data::is_token_store(path);
  if (config.privacy.is_private() && config.data.corpus.skip_bad && !store &&
      config.data.corpus.format == data::DataFormat::automatic)
    field_error(
        "skip_bad",
        "with `format` auto the first record would decide which others are left out, so one "
        "person's record could change everyone's; pass `format`, the one that all have");
  std::string name = tokenizer_name(config.data.tokenizer, source);
  // A store needs no tokenizer, and says itself which one made it.
  if (store && name == kBytes && config.data.tokenizer.empty()) name.clear();
  if (name.empty() && !store) {
    if (!config.model.shapes_do)
      field_error("tokenizer",
                  "is missing: {} has no tokenizer.json and a vocabulary of {}; pass `tokenizer` "
                  "PATH, `data` as a token store, or `tokenizer` bytes to read bytes as tokens",
                  source.name, source.config->vocabulary);
    name = kBytes;  // a measured step may read them in any case
  }
  const std::unique_ptr<data::Tokenizer> tokenizer =
      name.empty() ? nullptr : data::load_tokenizer(name);
  data::SampleKind kind = sample_kind(config, source);
  data::CorpusOptions corpus = config.data.corpus;
  if (kind == data::SampleKind::labelled) {
    if (corpus.label_key.empty()) corpus.label_key = "label";
    corpus.label_names = label_names(config, source);
  }
  data::EncodeOptions encode;
  encode.digest_text = config.privacy.is_private();
  encode.chat = data::find_chat_template(name, corpus.chat_template);
  const auto owners = corpus.user_key.empty() ? nullptr : std::make_shared<data::Owners>();
  const auto tokens = data::load_data(
      path, tokenizer.get(), corpus, encode,
      [&](const data::Corpus& read) {
        for (const data::BadLine& line : read.bad_lines()) {
          if (left_out) left_out(line.message());
        }
      },
      owners.get());
  tokens->require_vocabulary(source.config->vocabulary);
  // A conversation is a sample, unless packed ones are requested.
  if (!config.data.samples && tokens->header().masked) kind = data::SampleKind::document;
  // A private run must not end at the draw of a bad token, for that would tell of the draw.
  if (config.privacy.is_private()) tokens->check_tokens();
  const bool own_tokenizer = config.data.tokenizer.empty() && !source.folder.empty();
  const SpecialTokens special = choose_special_tokens(
      source, own_tokenizer, tokens->header().tokenizer, tokenizer.get(), config.data.end_token);
  if (kind == data::SampleKind::labelled) {
    if (tokens->label_count() > source.config->labels)
      user_error("{}: labels go up to {}, the model has {}; pass `labels` {}", path,
                 tokens->label_count() - 1, source.config->labels, tokens->label_count());
    // Padding must be told from text: the model and the samples have the same.
    if (special.padding) source.config->padding_id = special.padding->id;
    if (source.config->padding_id < 0)
      source.config->padding_id = special.end ? special.end->id : 0;
  }
  const double held_out = config.data.held_out;
  const auto id_of = [](const std::optional<SpecialToken>& token) {
    return token ? std::optional(token->id) : std::nullopt;
  };
  auto part = [&](data::Split split, bool may_be_empty) {
    return std::make_shared<const data::Samples>(
        tokens, data::SampleOptions{kind, config.model.seq_length, split, held_out, owners,
                                    id_of(special.end), id_of(special.padding), may_be_empty});
  };
  TextData text{part(held_out == 0 ? data::Split::all : data::Split::train, false), nullptr, owners,
                nullptr, special};
  // The default fraction of a few documents may be none of them; a requested one must be some.
  if (held_out > 0) text.held_out = part(data::Split::held_out, !config.data.held_out_required);
  if (text.held_out && text.held_out->count() == 0) text.held_out = nullptr;
  if (tokenizer) text.dropped = tokenizer->dropped_notice();
  if (!owners) return text;
  VEIL_CHECK(kind != data::SampleKind::packed, "packed sequences mix users");
  text.users = std::make_shared<const data::Users>(*owners, text.samples->documents());
  return text;
}

TextFeed::TextFeed(std::shared_ptr<const data::Samples> samples, int64_t rank_samples, int64_t seed,
                   int rank, int world)
    : samples_(samples),
      global_batch_(rank_samples * world),
      batches_(samples,
               std::make_unique<data::ShuffledOrder>(samples->count(), global_batch_,
                                                     static_cast<uint64_t>(seed), rank, world)) {}

void TextFeed::load_next(Executor& executor) {
  const double begin = steady_ms();
  const std::optional<data::Batch> batch = batches_.next();
  VEIL_CHECK(batch, "a shuffled order has no end");
  CategoryScope scope(Category::data);
  executor.load(batch_tensors(*batch));
  load_ms_ += steady_ms() - begin;
}

void TextFeed::begin_counting() {
  before_ = batches_.statistics();
  load_ms_ = 0;
}

double TextFeed::load_ms() const {
  return load_ms_ /
         static_cast<double>(std::max<int64_t>(1, batches_.statistics().batches - before_.batches));
}

RecordData TextFeed::record(const std::string& source) const {
  const data::LoaderStatistics now = batches_.statistics();
  const double steps = static_cast<double>(std::max<int64_t>(1, now.batches - before_.batches));
  const data::StoreHeader& header = samples_->store().header();
  return {.source = source,
          .tokenizer = header.tokenizer.name,
          .documents = header.documents,
          .tokens = header.tokens,
          .samples = samples_->count(),
          .steps_an_epoch = samples_->count() / global_batch_,
          .loader_busy_ms = (now.busy_ms - before_.busy_ms) / steps,
          .loader_waited_ms = (now.waited_ms - before_.waited_ms) / steps,
          .load_ms = load_ms()};
}

}  // namespace veil
