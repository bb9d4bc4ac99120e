#include "data/encode.h"

#include <condition_variable>
#include <deque>
#include <exception>
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
      : corpus_(corpus), tokenizer_(tokenizer), options_(options), limit_(4 * threads + 4) {
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
        for (const Document& document : chunk.documents) chunk.encoded.push_back(encoded(document));
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

  EncodedDocument encoded(const Document& document) const {
    EncodedDocument result{.tokens = tokenizer_.encode(document.text, options_.add_special),
                           .hash = content_hash(document.text),
                           .text_bytes = static_cast<int64_t>(document.text.size()),
                           .label = document.label,
                           .user = document.user};
    if (options_.digest_text) result.text_digest = sha256(document.text);
    return result;
  }

  Corpus& corpus_;
  const Tokenizer& tokenizer_;
  const EncodeOptions options_;
  const int64_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> waiting_;
  std::map<int64_t, Chunk> done_;
  int64_t read_ = 0, taken_ = 0;
  bool ended_ = false, stop_ = false;
  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace

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
    if (!corpus_options.label_key.empty() && !store->header().labelled) {
      field_error("label_key",
                  "{}: the token store '{}' has no labels; tokenize the text again with this key",
                  corpus_options.label_key, path);
    }
    return store;
  }
  Corpus corpus(path, corpus_options);
  if (!tokenizer)
    field_error("tokenizer",
                "is missing: '{}' holds text; allowed are a tokenizer's file or folder, and byte",
                path);
  StoreInMemory sink(store_header(*tokenizer, corpus_options, options));
  OwnedSink owned(sink, owners);
  encode_corpus(corpus, *tokenizer, options, owned);
  if (bad && corpus.counts().bad > 0) bad(corpus);
  if (corpus.counts().documents == 0) user_error("'{}' holds no document with text", path);
  return std::make_shared<TokenStore>(sink.finish());
}

}  // namespace veil::data
