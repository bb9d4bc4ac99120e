#include "data/token_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/stale_files.h"

namespace veil::data {

static_assert(std::endian::native == std::endian::little,
              "a token store's numbers are little-endian");

namespace {

using nlohmann::json;

constexpr char kMagic[8] = {'V', 'E', 'I', 'L', 'T', 'O', 'K', 'S'};
constexpr uint32_t kVersion = 1, kMaskedVersion = 2;
constexpr int64_t kHeaderBytes = 4096, kFixedBytes = 16, kLargestCount = int64_t{1} << 48;
constexpr size_t kBufferBytes = size_t{4} << 20;

int64_t token_bytes(const StoreHeader& header) {
  return header.tokenizer.vocabulary_size <= 65536 ? 2 : 4;
}

int64_t index_begin(const StoreHeader& header) {
  return kHeaderBytes + (header.tokens * token_bytes(header) + 7) / 8 * 8;
}

int64_t file_bytes(const StoreHeader& header) {
  return index_begin(header) + 8 * (2 * header.documents + 1) +
         (header.labelled ? 4 * header.documents : 0) + (header.masked ? header.tokens : 0);
}

// Programs that do not know of masks must not read such a file.
uint32_t version_of(const StoreHeader& header) {
  return !header.format.empty() ? kMaskedVersion : kVersion;
}

json token_json(const std::optional<int32_t>& token) {
  return token ? json(*token) : json();
}

std::string header_text(const StoreHeader& header) {
  const TokenizerIdentity& tokenizer = header.tokenizer;
  json text = {{"tokenizer", tokenizer.name.substr(0, 200)},
               {"tokenizer_hash", tokenizer.hash},
               {"vocabulary_size", tokenizer.vocabulary_size},
               {"begin_of_text", token_json(tokenizer.begin_of_text)},
               {"end_of_text", token_json(tokenizer.end_of_text)},
               {"padding", token_json(tokenizer.padding)},
               {"special_added", header.special_added},
               {"labelled", header.labelled},
               {"documents", header.documents},
               {"tokens", header.tokens},
               {"text_bytes", header.text_bytes},
               {"token_bytes", token_bytes(header)}};
  // Plain text has the header that it always had, and so the same digest.
  if (!header.format.empty()) {
    text["masked"] = header.masked;
    text["ended"] = header.ended;
    text["format"] = header.format;
    text["chat_template"] = header.chat_template;
  }
  return text.dump(-1, ' ', true, json::error_handler_t::replace);
}

[[noreturn]] void damaged(const std::string& path, const std::string& reason) {
  user_error("'{}' is no token store that can be used: {}; `veil tokenize` writes it anew", path,
             reason);
}

StoreHeader parse_header(const std::string& path, const char* begin) {
  uint32_t version, length;
  std::memcpy(&version, begin + 8, 4);
  std::memcpy(&length, begin + 12, 4);
  if (version != kVersion && version != kMaskedVersion)
    damaged(path, fmt::format("its version is {}, and this program reads {} and {}", version,
                              kVersion, kMaskedVersion));
  if (length > kHeaderBytes - kFixedBytes) damaged(path, "its header is too long");
  StoreHeader header;
  TokenizerIdentity& tokenizer = header.tokenizer;
  try {
    const json text = parse_json({begin + kFixedBytes, length});
    // Not get<int64_t>() alone, which takes a fraction beyond its range.
    const auto whole = [&](const char* key) {
      if (!text.at(key).is_number_integer())
        damaged(path, fmt::format("{} is no whole number", key));
      return text.at(key).get<int64_t>();
    };
    const auto token = [&](const char* key) -> std::optional<int32_t> {
      if (text.at(key).is_null()) return {};
      const auto value = whole(key);
      if (value < 0 || value >= tokenizer.vocabulary_size)
        damaged(path, fmt::format("{} is beyond its vocabulary", key));
      return static_cast<int32_t>(value);
    };
    tokenizer.name = text.at("tokenizer").get<std::string>();
    tokenizer.hash = text.at("tokenizer_hash").get<std::string>();
    tokenizer.vocabulary_size = whole("vocabulary_size");
    if (tokenizer.vocabulary_size < 1 || tokenizer.vocabulary_size > INT32_MAX)
      damaged(path, "its vocabulary is of no size");
    tokenizer.begin_of_text = token("begin_of_text");
    tokenizer.end_of_text = token("end_of_text");
    tokenizer.padding = token("padding");
    header.special_added = text.at("special_added").get<bool>();
    header.labelled = text.at("labelled").get<bool>();
    header.documents = whole("documents");
    header.tokens = whole("tokens");
    header.text_bytes = whole("text_bytes");
    header.masked = text.value("masked", false);
    header.ended = text.value("ended", false);
    header.format = text.value("format", std::string());
    header.chat_template = text.value("chat_template", std::string());
    if (version_of(header) != version) damaged(path, "its header contradicts its version");
    if (whole("token_bytes") != token_bytes(header))
      damaged(path, "its tokens are of another size");
  } catch (const json::exception& error) {
    damaged(path, fmt::format("its header cannot be read ({})", error.what()));
  }
  for (const int64_t count : {header.documents, header.tokens, header.text_bytes}) {
    if (count < 0 || count > kLargestCount) damaged(path, "its counts are impossible");
  }
  return header;
}

}  // namespace

struct TokenStore::Backing {
  void* mapped = MAP_FAILED;
  size_t mapped_bytes = 0;
  int descriptor = -1;  // of the mapped file
  std::vector<uint16_t> short_tokens;
  std::vector<uint32_t> long_tokens;
  std::vector<uint64_t> offsets{0}, hashes;
  std::vector<int32_t> labels;
  std::vector<uint8_t> trained;
  std::optional<Sha256Digest> texts;

  Backing() = default;
  ~Backing() {
    if (mapped != MAP_FAILED) munmap(mapped, mapped_bytes);
    if (descriptor >= 0) close(descriptor);
  }
  // To touch what was cut off a mapped file would end the process by a signal.
  void require_whole(const std::string& name) const {
    if (descriptor < 0) return;
    struct stat status {};
    if (fstat(descriptor, &status) == 0 && static_cast<size_t>(status.st_size) == mapped_bytes)
      return;
    user_error(
        "'{}' has {} bytes now and had {}: it was changed while it was read; write it anew with "
        "`veil tokenize`, and resume",
        name, status.st_size, mapped_bytes);
  }
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
};

TokenStore::TokenStore(TokenStore&&) noexcept = default;
TokenStore& TokenStore::operator=(TokenStore&&) noexcept = default;
TokenStore::~TokenStore() = default;

TokenStore TokenStore::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) user_error("cannot read '{}': {}", path, std::strerror(errno));
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const int64_t size = known ? static_cast<int64_t>(status.st_size) : 0;
  TokenStore store;
  store.name_ = path;
  store.backing_ = std::make_unique<Backing>();
  if (size >= kHeaderBytes) {
    store.backing_->mapped_bytes = static_cast<size_t>(size);
    store.backing_->mapped =
        mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int failed = errno;
  store.backing_->descriptor = descriptor;
  if (size < kHeaderBytes)
    damaged(path, fmt::format("it has {} bytes, fewer than its header", size));
  if (store.backing_->mapped == MAP_FAILED)
    user_error("cannot map '{}': {}", path, std::strerror(failed));

  const char* const begin = static_cast<const char*>(store.backing_->mapped);
  if (std::memcmp(begin, kMagic, sizeof kMagic) != 0) damaged(path, "it does not begin as one");
  store.header_ = parse_header(path, begin);
  const StoreHeader& header = store.header_;
  if (size != file_bytes(header)) {
    damaged(path,
            fmt::format("it has {} bytes where its header asks for {}", size, file_bytes(header)));
  }
  if (token_bytes(header) == 2) {
    store.short_tokens_ = reinterpret_cast<const uint16_t*>(begin + kHeaderBytes);
  } else {
    store.long_tokens_ = reinterpret_cast<const uint32_t*>(begin + kHeaderBytes);
  }
  const auto documents = static_cast<size_t>(header.documents);
  const auto* const index = reinterpret_cast<const uint64_t*>(begin + index_begin(header));
  store.offsets_ = {index, documents + 1};
  store.hashes_ = {index + documents + 1, documents};
  if (header.labelled)
    store.labels_ = {reinterpret_cast<const int32_t*>(index + 2 * documents + 1), documents};
  if (header.masked)
    store.trained_ = {reinterpret_cast<const uint8_t*>(begin + size - header.tokens),
                      static_cast<size_t>(header.tokens)};
  if (std::any_of(store.trained_.begin(), store.trained_.end(),
                  [](uint8_t trained) { return trained > 1; })) {
    damaged(path, "its mask holds something else than 0 and 1");
  }
  if (store.offsets_.front() != 0 ||
      store.offsets_.back() != static_cast<uint64_t>(header.tokens) ||
      !std::is_sorted(store.offsets_.begin(), store.offsets_.end())) {
    damaged(path, "its documents do not follow each other");
  }
  if (std::any_of(store.labels_.begin(), store.labels_.end(),
                  [](int32_t label) { return label < 0; })) {
    damaged(path, "it has a negative label");
  }
  return store;
}

int64_t TokenStore::size(int64_t document) const {
  backing_->require_whole(name_);
  VEIL_CHECK(document >= 0 && document < header_.documents, "document {} of {}", document,
             header_.documents);
  const auto index = static_cast<size_t>(document);
  return static_cast<int64_t>(offsets_[index + 1] - offsets_[index]);
}

int32_t TokenStore::label(int64_t document) const {
  VEIL_CHECK(header_.labelled, "the documents have no labels");
  return labels_[static_cast<size_t>(document)];
}

int32_t TokenStore::label_count() const {
  return labels_.empty() ? 0 : *std::max_element(labels_.begin(), labels_.end()) + 1;
}

void TokenStore::copy(int64_t document, int64_t first, int64_t count, int64_t* tokens) const {
  backing_->require_whole(name_);
  VEIL_CHECK(first >= 0 && count >= 0 && first + count <= size(document),
             "tokens {} to {} of document {}", first, first + count, document);
  const auto begin = static_cast<int64_t>(offsets_[static_cast<size_t>(document)]) + first;
  for (int64_t index = 0; index < count; ++index) {
    const int64_t token = short_tokens_ ? int64_t{short_tokens_[begin + index]}
                                        : int64_t{long_tokens_[begin + index]};
    if (token >= header_.tokenizer.vocabulary_size) {
      user_error("token {} of document {} in '{}' is beyond the vocabulary of {}", token, document,
                 name_, header_.tokenizer.vocabulary_size);
    }
    tokens[index] = token;
  }
}

void TokenStore::copy_trained(int64_t document, int64_t first, int64_t count,
                              uint8_t* trained) const {
  backing_->require_whole(name_);
  VEIL_CHECK(first >= 0 && count >= 0 && first + count <= size(document),
             "tokens {} to {} of document {}", first, first + count, document);
  if (!header_.masked) {
    std::fill_n(trained, count, uint8_t{1});
    return;
  }
  const auto begin = static_cast<int64_t>(offsets_[static_cast<size_t>(document)]) + first;
  std::copy_n(trained_.begin() + begin, count, trained);
}

namespace {

template <typename T>
std::string_view bytes_of(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

}  // namespace

Sha256Digest TokenStore::digest() const {
  backing_->require_whole(name_);
  const auto tokens = static_cast<size_t>(header_.tokens);
  Sha256 all;
  all.add(sha256(header_text(header_)));
  all.add(digest_of_memory(short_tokens_ ? bytes_of(short_tokens_, tokens)
                                         : bytes_of(long_tokens_, tokens)));
  all.add(digest_of_memory(bytes_of(offsets_.data(), offsets_.size())));
  all.add(digest_of_memory(bytes_of(hashes_.data(), hashes_.size())));
  all.add(digest_of_memory(bytes_of(labels_.data(), labels_.size())));
  if (header_.masked) all.add(digest_of_memory(bytes_of(trained_.data(), trained_.size())));
  if (backing_->texts) all.add(*backing_->texts);
  return all.digest();
}

void TokenStore::check_tokens() const {
  backing_->require_whole(name_);
  const auto first_beyond = [&](const auto* tokens) {
    const int64_t vocabulary = header_.tokenizer.vocabulary_size;
    return std::find_if(tokens, tokens + header_.tokens,
                        [=](auto token) { return int64_t{token} >= vocabulary; }) -
           tokens;
  };
  const int64_t place = short_tokens_ ? first_beyond(short_tokens_) : first_beyond(long_tokens_);
  if (place == header_.tokens) return;
  const auto document =
      std::upper_bound(offsets_.begin(), offsets_.end(), static_cast<uint64_t>(place)) -
      offsets_.begin() - 1;
  damaged(name_, fmt::format("token {} at position {} (document {}) is beyond the vocabulary of {}",
                             short_tokens_ ? short_tokens_[place] : long_tokens_[place], place,
                             document, header_.tokenizer.vocabulary_size));
}

void TokenStore::require_vocabulary(int64_t rows) const {
  if (header_.tokenizer.vocabulary_size <= rows) return;
  user_error(
      "the tokens of '{}' reach up to {} (tokenizer '{}'), beyond the model's vocabulary of {}: "
      "encode with the "
      "model's tokenizer",
      name_, header_.tokenizer.vocabulary_size - 1, header_.tokenizer.name, rows);
}

void TokenStore::require_tokenizer(const TokenizerIdentity& tokenizer) const {
  if (header_.tokenizer.hash == tokenizer.hash) return;
  user_error(
      "'{}' was written with the tokenizer '{}' ({}), and '{}' ({}) is given: `veil tokenize` "
      "writes it anew",
      name_, header_.tokenizer.name, header_.tokenizer.hash, tokenizer.name, tokenizer.hash);
}

namespace {

// Counts a document into the header, after checking it.
void count_in(StoreHeader& header, const EncodedDocument& document) {
  VEIL_CHECK(document.label.has_value() == header.labelled,
             "some documents have labels and some have none");
  VEIL_CHECK(document.trained.size() == (header.masked ? document.tokens.size() : 0),
             "a mask of {} for {} tokens", document.trained.size(), document.tokens.size());
  for (const int32_t token : document.tokens) {
    VEIL_CHECK(token >= 0 && token < header.tokenizer.vocabulary_size,
               "token {} of a vocabulary of {}", token, header.tokenizer.vocabulary_size);
  }
  ++header.documents;
  header.tokens += static_cast<int64_t>(document.tokens.size());
  header.text_bytes += document.text_bytes;
}

}  // namespace

StoreInMemory::StoreInMemory(StoreHeader header)
    : backing_(std::make_unique<TokenStore::Backing>()), header_(std::move(header)) {
  header_.documents = header_.tokens = header_.text_bytes = 0;
}
StoreInMemory::~StoreInMemory() = default;

void StoreInMemory::append(const EncodedDocument& document) {
  count_in(header_, document);
  const auto add = [&](auto& tokens) {
    tokens.insert(tokens.end(), document.tokens.begin(), document.tokens.end());
  };
  if (token_bytes(header_) == 2) {
    add(backing_->short_tokens);
  } else {
    add(backing_->long_tokens);
  }
  backing_->offsets.push_back(static_cast<uint64_t>(header_.tokens));
  backing_->hashes.push_back(document.hash);
  if (document.text_digest) {
    texts_.add(*document.text_digest);
    ++texts_hashed_;
  }
  if (document.label) backing_->labels.push_back(*document.label);
  backing_->trained.insert(backing_->trained.end(), document.trained.begin(),
                           document.trained.end());
}

TokenStore StoreInMemory::finish() {
  VEIL_CHECK(texts_hashed_ == 0 || texts_hashed_ == header_.documents,
             "{} of {} texts have a digest", texts_hashed_, header_.documents);
  if (texts_hashed_ > 0) backing_->texts = texts_.digest();
  TokenStore store;
  store.name_ = "the data";
  store.header_ = header_;
  store.backing_ = std::move(backing_);
  if (token_bytes(header_) == 2) {
    store.short_tokens_ = store.backing_->short_tokens.data();
  } else {
    store.long_tokens_ = store.backing_->long_tokens.data();
  }
  store.offsets_ = store.backing_->offsets;
  store.hashes_ = store.backing_->hashes;
  store.labels_ = store.backing_->labels;
  store.trained_ = store.backing_->trained;
  return store;
}

StoreFile::StoreFile(const std::string& path, StoreHeader header)
    : path_(path),
      temporary_(fmt::format("{}.{}.tmp", path, getpid())),
      header_(std::move(header)),
      written_(kHeaderBytes) {
  header_.documents = header_.tokens = header_.text_bytes = 0;
  check_file_can_be_written(path);
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  remove_stale_temporaries(path, OtherWriters::possible);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) user_error("cannot write '{}': {}", path_, std::strerror(errno));
}

StoreFile::~StoreFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void StoreFile::write_at(int64_t place, const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t wrote = pwrite(descriptor_, from, count, static_cast<off_t>(place));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) user_error("cannot write '{}': {}", path_, std::strerror(errno));
    from += wrote;
    place += wrote;
    count -= static_cast<size_t>(wrote);
  }
}

void StoreFile::flush() {
  write_at(written_, buffer_.data(), buffer_.size());
  written_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void StoreFile::append(const EncodedDocument& document) {
  count_in(header_, document);
  const auto bytes = static_cast<size_t>(token_bytes(header_));
  for (const int32_t token : document.tokens) {
    // little-endian: the low bytes come first
    const auto* const from = reinterpret_cast<const char*>(&token);
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
  if (buffer_.size() >= kBufferBytes) flush();
  offsets_.push_back(static_cast<uint64_t>(header_.tokens));
  hashes_.push_back(document.hash);
  if (document.label) labels_.push_back(*document.label);
  trained_.insert(trained_.end(), document.trained.begin(), document.trained.end());
}

StoreHeader StoreFile::finish() {
  flush();
  int64_t place = index_begin(header_);
  write_at(place, offsets_.data(), offsets_.size() * 8);
  place += static_cast<int64_t>(offsets_.size() * 8);
  write_at(place, hashes_.data(), hashes_.size() * 8);
  place += static_cast<int64_t>(hashes_.size() * 8);
  write_at(place, labels_.data(), labels_.size() * 4);
  place += static_cast<int64_t>(labels_.size() * 4);
  write_at(place, trained_.data(), trained_.size());

  const std::string text = header_text(header_);
  VEIL_CHECK(static_cast<int64_t>(text.size()) <= kHeaderBytes - kFixedBytes,
             "the header has {} bytes", text.size());
  std::string head(kMagic, sizeof kMagic);
  const uint32_t numbers[2] = {version_of(header_), static_cast<uint32_t>(text.size())};
  head.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  head += text;
  head.resize(kHeaderBytes, '\0');
  write_at(0, head.data(), head.size());

  if (fsync(descriptor_) != 0) user_error("cannot write '{}': {}", path_, std::strerror(errno));
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    user_error("cannot write '{}': {}", path_, std::strerror(errno));
  close(descriptor_);
  descriptor_ = -1;
  return header_;
}

bool is_token_store(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  char begin[sizeof kMagic] = {};
  return file.read(begin, sizeof begin) && std::memcmp(begin, kMagic, sizeof kMagic) == 0;
}

}  // namespace veil::data
