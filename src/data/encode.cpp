#include "data/encode.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "data/content_hash.h"

namespace veil::data {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;

struct Chunk {
  int64_t number = 0;
  std::vector<Document> documents;
  std::vector<EncodedDocument> encoded;
  int64_t read_bytes = 0;               // of the files, when it was read
  std::exception_ptr failed = nullptr;  // its documents stop before what failed
};

// Chunks on their way from the reader through the encoders to the caller; never more than `limit`
// at once.
class Line {
 public:
  Line(Corpus& corpus, const Tokenizer& tokenizer, const EncodeOptions& options, int threads)
      : corpus_(corpus),
        tokenizer_(tokenizer),
        options_(options),
        masked_(corpus.masked()),
        limit_(4 * threads + 4) {
    threads_.emplace_back([this] { read(); });
    for (int count = 0; count < threads; ++count) threads_.emplace_back([this] { encode(); });
  }
  ~Line() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // The next chunk in order; nothing at the end.
  std::optional<Chunk> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(taken_) || (ended_ && taken_ == read_); });
    if (!done_.contains(taken_)) return {};
    Chunk chunk = std::move(done_.extract(taken_).mapped());
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    return chunk;
  }

 private:
  void read() {
    bool more = true;
    while (more) {
      Chunk chunk;
      try {
        for (size_t bytes = 0; bytes < kChunkBytes;) {
          std::optional<Document> document = corpus_.next();
          if (!document) {
            more = false;
            break;
          }
          bytes += document->text.size();
          chunk.documents.push_back(std::move(*document));
        }
      } catch (...) {
        chunk.failed = std::current_exception();
        more = false;
      }
      chunk.read_bytes = corpus_.read_bytes();
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || read_ - taken_ < limit_; });
      if (stop_) break;
      chunk.number = read_++;
      waiting_.push_back(std::move(chunk));
      ended_ = !more;
      lock.unlock();
      changed_.notify_all();
    }
  }

  void encode() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || ended_ || !waiting_.empty(); });
      if (stop_ || waiting_.empty()) return;
      Chunk chunk = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        for (const Document& document : chunk.documents)
          chunk.encoded.push_back(encode_document(document, tokenizer_, masked_, options_));
      } catch (...) {
        chunk.failed = std::current_exception();
      }
      chunk.documents.clear();
      lock.lock();
      done_.emplace(chunk.number, std::move(chunk));
      lock.unlock();
      changed_.notify_all();
    }
  }

  Corpus& corpus_;
  const Tokenizer& tokenizer_;
  const EncodeOptions options_;
  const bool masked_;
  const int64_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> waiting_;
  std::map<int64_t, Chunk> done_;
  int64_t read_ = 0, taken_ = 0;
  bool ended_ = false, stop_ = false;
  std::vector<std::thread> threads_;  // last: they use what is above
};

}  // namespace

namespace {

// A token is trained on if it begins inside a reply or covers the first character of one.
bool in_replies(const Span& token, const std::vector<Span>& replies) {
  const auto reply = std::partition_point(
      replies.begin(), replies.end(), [&](const Span& each) { return each.end <= token.begin; });
  return reply != replies.end() && token.end > token.begin && token.end > reply->begin;
}

std::string all_text(const Document& document) {
  return document.second ? document.text + "\n" + *document.second : document.text;
}

}  // namespace

EncodedDocument encode_document(const Document& document, const Tokenizer& tokenizer, bool masked,
                                const EncodeOptions& options) {
  const std::string text = all_text(document);
  EncodedDocument result{.tokens = {},
                         .hash = content_hash(text),
                         .text_bytes = static_cast<int64_t>(text.size()),
                         .label = document.label,
                         .user = document.user};
  if (options.digest_text) result.text_digest = sha256(text);
  const bool add_special = options.add_special && !document.whole;
  if (document.second) {
    result.tokens = tokenizer.encode_pair(document.text, *document.second);
  } else if (masked) {
    EncodedText encoded = tokenizer.encode_with_spans(document.text, add_special);
    result.tokens = std::move(encoded.tokens);
    for (const Span& span : encoded.spans)
      result.trained.push_back(in_replies(span, document.replies));
  } else {
    result.tokens = tokenizer.encode(document.text, add_special);
  }
  return result;
}

void encode_corpus(Corpus& corpus, const Tokenizer& tokenizer, const EncodeOptions& options,
                   StoreSink& sink, const std::function<void(const EncodeProgress&)>& progress) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Line line(corpus, tokenizer, options, options.threads > 0 ? options.threads : cores);
  EncodeProgress now{.file_bytes = corpus.file_bytes()};
  while (std::optional<Chunk> chunk = line.take()) {
    for (const EncodedDocument& document : chunk->encoded) {
      sink.append(document);
      now.tokens += static_cast<int64_t>(document.tokens.size());
    }
    if (chunk->failed) std::rethrow_exception(chunk->failed);
    now.documents += static_cast<int64_t>(chunk->encoded.size());
    now.read_bytes = chunk->read_bytes;
    if (progress) progress(now);
  }
}

namespace {

// Notes whose each document is on its way.
class OwnedSink : public StoreSink {
 public:
  OwnedSink(StoreSink& sink, Owners* owners) : sink_(sink), owners_(owners) {}
  void append(const EncodedDocument& document) override {
    if (owners_) owners_->add(document.user);
    sink_.append(document);
  }

 private:
  StoreSink& sink_;
  Owners* owners_;
};

}  // namespace

StoreHeader store_header(const Tokenizer& tokenizer, const CorpusOptions& corpus,
                         const EncodeOptions& options) {
  return {.tokenizer = tokenizer.identity(),
          .special_added = options.add_special,
          .labelled = !corpus.label_key.empty()};
}

bool one_sample_a_record(const std::string& path, const CorpusOptions& corpus) {
  if (!std::filesystem::exists(path)) return false;
  if (is_token_store(path)) return !TokenStore::open(path).header().format.empty();
  // Any template will do to read the first record.
  return Corpus(path, corpus, {named_chat_template(ChatFormat::chatml, {}), ""}).format() !=
         DataFormat::text;
}

StoreHeader corpus_header(const Tokenizer& tokenizer, Corpus& corpus, const CorpusOptions& wanted,
                          const EncodeOptions& options) {
  StoreHeader header = store_header(tokenizer, wanted, options);
  header.masked = corpus.masked();
  header.ended = corpus.ended() && !header.labelled;
  if (corpus.format() == DataFormat::text) return header;
  header.format = name_of(corpus.format());
  header.chat_template = corpus.chat_name();
  return header;
}

namespace {

// What decides the tokens and their mask was decided when the store was written.
void check_store_format(const std::string& path, const TokenStore& store,
                        const CorpusOptions& wanted) {
  const StoreHeader& header = store.header();
  const std::string format = header.format.empty() ? "text" : header.format;
  if (wanted.format != DataFormat::automatic && name_of(wanted.format) != format)
    field_error("format", "{}: the token store '{}' holds {}; tokenize the data again",
                name_of(wanted.format), path, format);
  const LossOn loss_on = header.masked ? LossOn::replies : LossOn::all;
  if (wanted.loss_on && *wanted.loss_on != loss_on)
    field_error("loss_on", "{}: the token store '{}' was written for {}; tokenize the data again",
                name_of(*wanted.loss_on), path, name_of(loss_on));
  if (!wanted.chat_template.empty() && wanted.chat_template != header.chat_template)
    field_error(
        "chat_template", "{}: the token store '{}' was written with {}; tokenize the data again",
        wanted.chat_template, path, header.chat_template.empty() ? "none" : header.chat_template);
}

}  // namespace

std::shared_ptr<const TokenStore> load_data(const std::string& path, const Tokenizer* tokenizer,
                                            const CorpusOptions& corpus_options,
                                            const EncodeOptions& options,
                                            const std::function<void(const Corpus&)>& bad,
                                            Owners* owners) {
  VEIL_CHECK((owners != nullptr) == !corpus_options.user_key.empty(), "users without a key");
  if (is_token_store(path)) {
    if (owners)
      field_error("unit_key",
                  "{}: the token store '{}' has no users; pass the folder of .jsonl files",
                  corpus_options.user_key, path);
    auto store = std::make_shared<TokenStore>(TokenStore::open(path));
    if (tokenizer) store->require_tokenizer(tokenizer->identity());
    check_store_format(path, *store, corpus_options);
    if (!corpus_options.label_key.empty() && !store->header().labelled) {
      field_error("label_key",
                  "{}: the token store '{}' has no labels; tokenize the text again with this key",
                  corpus_options.label_key, path);
    }
    return store;
  }
  Corpus corpus(path, corpus_options, options.chat);
  if (!tokenizer)
    field_error("tokenizer",
                "is missing: '{}' holds text; allowed are a tokenizer's file or folder, and byte",
                path);
  StoreInMemory sink(corpus_header(*tokenizer, corpus, corpus_options, options));
  OwnedSink owned(sink, owners);
  encode_corpus(corpus, *tokenizer, options, owned);
  if (bad && corpus.counts().bad > 0) bad(corpus);
  check_documents(path, corpus.counts());
  return std::make_shared<TokenStore>(sink.finish());
}

}  // namespace veil::data
