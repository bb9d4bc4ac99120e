// Text goes through: added tokens found in it, NFC, added tokens of normalized text, splits into
// pieces, BPE of each.
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "data/bpe.h"
#include "data/pattern.h"
#include "data/tokenizer.h"
#include "data/tokenizer_file.h"
#include "data/utf8.h"

namespace veil::data {
namespace {

constexpr size_t kLongestCachedPiece = 64, kLargestCache = size_t{1} << 16;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using PieceCache = std::unordered_map<std::string, std::vector<int32_t>, TextHash, std::equal_to<>>;

// What one thread works with. Pieces come again and again, so what they encode to is kept.
struct Desk {
  Pattern::Matching matching;
  Bpe::Workspace workspace;
  PieceCache cache;
  std::vector<int32_t> tokens;
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerFile file)
      : file_(std::move(file)),
        bpe_(file_.token_of_byte, file_.merges),
        added_(file_.added),
        added_normalized_(normalized(file_)) {
    for (const SplitRule& rule : file_.splits) {
      rules_.push_back({rule.prefix_space, {}});
      if (!rule.expression.empty()) rules_.back().pattern.emplace(rule.expression);
    }
  }

  const TokenizerIdentity& identity() const override { return file_.identity; }

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    if (const size_t wrong = find_invalid_utf8(text); wrong != std::string_view::npos) {
      user_error("a text is not UTF-8: byte 0x{:02X} at {}", static_cast<uint8_t>(text[wrong]),
                 wrong);
    }
    std::unique_ptr<Desk> desk = take_desk();
    desk->tokens.clear();
    if (add_special) desk->tokens = file_.before;
    for (const auto& part : added_.split(text)) {
      if (part.token >= 0) {
        desk->tokens.push_back(part.token);
      } else {
        encode_text(text.substr(part.span.begin, part.span.end - part.span.begin), *desk);
      }
    }
    if (add_special)
      desk->tokens.insert(desk->tokens.end(), file_.after.begin(), file_.after.end());
    std::vector<int32_t> tokens(desk->tokens);
    give_back(std::move(desk));
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& tokens) const override {
    std::string bytes;
    for (const int32_t token : tokens) {
      if (token < 0 || static_cast<size_t>(token) >= file_.known.size() ||
          !file_.known[static_cast<size_t>(token)]) {
        user_error("token {} is beyond the vocabulary of {} (tokenizer '{}')", token,
                   file_.identity.vocabulary_size, file_.identity.name);
      }
      bytes += file_.bytes_of_token[static_cast<size_t>(token)];
    }
    return repair_utf8(bytes);
  }

 private:
  struct Rule {
    bool prefix_space;
    std::optional<Pattern> pattern;
  };

  static std::vector<AddedToken> normalized(const TokenizerFile& file) {
    std::vector<AddedToken> tokens = file.added_normalized;
    if (file.nfc) {
      for (AddedToken& token : tokens) token.content = to_nfc(token.content);
    }
    return tokens;
  }

  void encode_text(std::string_view text, Desk& desk) const {
    std::string normal;
    if (file_.nfc && !surely_nfc(text)) {
      normal = to_nfc(text);
      text = normal;
    }
    if (added_normalized_.empty()) return split(text, 0, desk);
    for (const auto& part : added_normalized_.split(text)) {
      if (part.token >= 0) {
        desk.tokens.push_back(part.token);
      } else {
        split(text.substr(part.span.begin, part.span.end - part.span.begin), 0, desk);
      }
    }
  }

  // Cuts `text` by the rules from `first` on and encodes what comes out.
  void split(std::string_view text, size_t first, Desk& desk) const {
    if (text.empty()) return;
    if (first == rules_.size()) return encode_piece(text, desk);
    const Rule& rule = rules_[first];
    std::string prefixed;
    if (rule.prefix_space && !text.starts_with(' ')) {
      prefixed = ' ' + std::string(text);
      text = prefixed;
    }
    if (!rule.pattern) return split(text, first + 1, desk);
    size_t done = 0;  // what lies before is cut
    Span match;
    for (size_t from = 0;
         from < text.size() && rule.pattern->find(text, from, match, desk.matching);) {
      if (match.end == match.begin) {  // an empty match cuts nothing
        from = match.end;
        if (from < text.size()) next_character(text, from);
        continue;
      }
      split(text.substr(done, match.begin - done), first + 1, desk);
      split(text.substr(match.begin, match.end - match.begin), first + 1, desk);
      done = from = match.end;
    }
    split(text.substr(done), first + 1, desk);
  }

  void encode_piece(std::string_view piece, Desk& desk) const {
    const bool cached = piece.size() <= kLongestCachedPiece;
    if (cached) {
      if (const auto found = desk.cache.find(piece); found != desk.cache.end()) {
        desk.tokens.insert(desk.tokens.end(), found->second.begin(), found->second.end());
        return;
      }
    }
    const size_t before = desk.tokens.size();
    const auto whole = file_.whole_pieces_first ? file_.vocabulary.find(std::string(piece))
                                                : file_.vocabulary.end();
    if (whole != file_.vocabulary.end()) {
      desk.tokens.push_back(whole->second);
    } else {
      bpe_.encode(piece, desk.workspace, desk.tokens);
    }
    if (cached && desk.cache.size() < kLargestCache) {
      desk.cache.emplace(piece,
                         std::vector<int32_t>(desk.tokens.begin() + static_cast<int64_t>(before),
                                              desk.tokens.end()));
    }
  }

  std::unique_ptr<Desk> take_desk() const {
    const std::lock_guard lock(mutex_);
    if (desks_.empty()) return std::make_unique<Desk>();
    std::unique_ptr<Desk> desk = std::move(desks_.back());
    desks_.pop_back();
    return desk;
  }
  void give_back(std::unique_ptr<Desk> desk) const {
    const std::lock_guard lock(mutex_);
    desks_.push_back(std::move(desk));
  }

  TokenizerFile file_;
  Bpe bpe_;
  AddedTokens added_, added_normalized_;
  std::vector<Rule> rules_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Desk>> desks_;  // those that no thread holds
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (path == "byte" || path == "bytes") return byte_tokenizer();
  return std::make_unique<BpeTokenizer>(read_tokenizer_file(path));
}

namespace {

constexpr int32_t kEndOfText = 256, kPadding = 257;

class ByteTokenizer : public Tokenizer {
 public:
  const TokenizerIdentity& identity() const override { return identity_; }

  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& tokens) const override {
    std::string bytes;
    for (const int32_t token : tokens) {
      if (token < 0 || token > kPadding) {
        user_error("token {} is beyond the vocabulary of {} (tokenizer 'byte')", token,
                   kPadding + 1);
      }
      if (token < kEndOfText) {
        bytes.push_back(static_cast<char>(token));
      } else {
        bytes += token == kEndOfText ? "<|endoftext|>" : "<|padding|>";
      }
    }
    return repair_utf8(bytes);
  }

 private:
  const TokenizerIdentity identity_{.name = "byte",
                                    .hash = "0000000000000100",
                                    .vocabulary_size = kPadding + 1,
                                    .begin_of_text = {},
                                    .end_of_text = kEndOfText,
                                    .padding = kPadding};
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace veil::data
