// Text goes through: added tokens found in it, the normalizer, added tokens of normalized text,
// splits into pieces, BPE of each.
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "data/bpe.h"
#include "data/normalizer.h"
#include "data/pattern.h"
#include "data/token_decoder.h"
#include "data/tokenizer.h"
#include "data/tokenizer_file.h"

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
  std::vector<Span> piece_spans;       // of the piece that is encoded
  std::vector<Span>* spans = nullptr;  // where those of all tokens go; null: nobody asks
};

// A part of the text on its way.
struct Stretch {
  std::string_view text;
  const Span* origin = nullptr;  // by byte of `text`; null: nobody asks
  bool begins_text = false;

  Stretch part(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), origin ? origin + begin : nullptr,
            begins_text && begin == 0};
  }
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerFile file)
      : file_(std::move(file)),
        bpe_(file_.first, file_.merges),
        normalizer_(file_.normalizers),
        added_(file_.added),
        added_normalized_(normalized(file_)) {
    for (const SplitRule& rule : file_.splits) {
      rules_.push_back({rule, {}});
      if (!rule.expression.empty()) rules_.back().pattern.emplace(rule.expression);
    }
  }

  const TokenizerIdentity& identity() const override { return file_.identity; }

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    std::unique_ptr<Desk> desk = take_desk();
    fill(add_special ? file_.single : kTextAlone, text, {}, *desk);
    std::vector<int32_t> tokens(desk->tokens);
    give_back(std::move(desk));
    return tokens;
  }

  EncodedText encode_with_spans(std::string_view text, bool add_special) const override {
    EncodedText encoded;
    std::unique_ptr<Desk> desk = take_desk();
    desk->spans = &encoded.spans;
    fill(add_special ? file_.single : kTextAlone, text, {}, *desk);
    desk->spans = nullptr;
    encoded.tokens = desk->tokens;
    give_back(std::move(desk));
    return encoded;
  }

  std::vector<int32_t> encode_pair(std::string_view first, std::string_view second) const override {
    std::unique_ptr<Desk> desk = take_desk();
    fill(file_.pair, first, second, *desk);
    std::vector<int32_t> tokens(desk->tokens);
    give_back(std::move(desk));
    return tokens;
  }

  std::string dropped_notice() const override {
    if (!dropped_) return "";
    return fmt::format(
        "the tokenizer '{}' has no token for some bytes of the text; they are left out, as the "
        "library that the file was made for does",
        file_.identity.name);
  }

  std::string decode(const std::vector<int32_t>& tokens) const override {
    std::vector<std::string> texts;
    texts.reserve(tokens.size());
    for (const int32_t token : tokens) {
      if (token < 0 || static_cast<size_t>(token) >= file_.known.size() ||
          !file_.known[static_cast<size_t>(token)]) {
        user_error("token {} is beyond the vocabulary of {} (tokenizer '{}')", token,
                   file_.identity.vocabulary_size, file_.identity.name);
      }
      texts.push_back(file_.text_of_token[static_cast<size_t>(token)]);
    }
    return decode_tokens(std::move(texts), file_.decoders);
  }

 private:
  struct Rule {
    SplitRule what;
    std::optional<Pattern> pattern;
  };
  static inline const std::vector<TemplatePart> kTextAlone{{TemplatePart::Kind::text}};

  static std::vector<AddedToken> normalized(const TokenizerFile& file) {
    std::vector<AddedToken> tokens = file.added_normalized;
    if (tokens.empty() || file.normalizers.empty()) return tokens;
    const Normalizer normalizer(file.normalizers);
    Pattern::Matching matching;
    for (AddedToken& token : tokens) {
      TrackedText content{token.content, {}};
      normalizer.apply(content, matching);
      token.content = content.text;
    }
    return tokens;
  }

  // The tokens of a template into the desk.
  void fill(const std::vector<TemplatePart>& parts, std::string_view text, std::string_view second,
            Desk& desk) const {
    desk.tokens.clear();
    size_t behind = 0;  // of the text, when a token is put down
    for (const TemplatePart& part : parts) {
      if (part.kind == TemplatePart::Kind::token) {
        put(part.token, {behind, behind}, desk);
        continue;
      }
      const std::string_view whole = part.kind == TemplatePart::Kind::text ? text : second;
      encode_whole(whole, desk);
      behind = whole.size();
    }
  }

  static void put(int32_t token, Span span, Desk& desk) {
    desk.tokens.push_back(token);
    if (desk.spans) desk.spans->push_back(span);
  }

  void encode_whole(std::string_view text, Desk& desk) const {
    if (const size_t wrong = find_invalid_utf8(text); wrong != std::string_view::npos) {
      user_error("a text is not UTF-8: byte 0x{:02X} at {}", static_cast<uint8_t>(text[wrong]),
                 wrong);
    }
    for (const auto& part : added_.split(text)) {
      if (part.token >= 0) {
        put(part.token, part.span, desk);
      } else {
        encode_text(text.substr(part.span.begin, part.span.end - part.span.begin), part.span.begin,
                    desk);
      }
    }
  }

  // `text` stands at byte `offset` of the whole.
  void encode_text(std::string_view text, size_t offset, Desk& desk) const {
    TrackedText tracked;
    Stretch stretch{text, nullptr, offset == 0};
    if (desk.spans || !normalizer_.surely_unchanged(text)) {
      tracked = desk.spans ? track(text, offset) : TrackedText{std::string(text), {}};
      normalizer_.apply(tracked, desk.matching);
      stretch.text = tracked.text;
      if (desk.spans) stretch.origin = tracked.origin.data();
    }
    if (added_normalized_.empty()) return split(stretch, 0, desk);
    for (const auto& part : added_normalized_.split(stretch.text)) {
      const Stretch here = stretch.part(part.span.begin, part.span.end);
      if (part.token >= 0) {
        put(part.token, origin_of(here, {0, here.text.size()}), desk);
      } else {
        split(here, 0, desk);
      }
    }
  }

  static Span origin_of(const Stretch& stretch, Span span) {
    if (!stretch.origin) return {};
    return {stretch.origin[span.begin].begin, stretch.origin[span.end - 1].end};
  }

  // Cuts the stretch by the rules from `first` on and encodes what comes out.
  void split(const Stretch& stretch, size_t first, Desk& desk) const {
    if (stretch.text.empty()) return;
    if (first == rules_.size()) return encode_piece(stretch, desk);
    const Rule& rule = rules_[first];
    if (rule.what.space.empty() && !(rule.what.prefix_space && !stretch.text.starts_with(' ')))
      return cut(stretch, first, desk);

    TrackedText changed{std::string(stretch.text), {}};
    if (stretch.origin) changed.origin.assign(stretch.origin, stretch.origin + stretch.text.size());
    std::vector<NormalizerRule> steps;
    if (rule.what.space.empty()) {
      steps.push_back({NormalizerRule::Kind::prepend, " "});
    } else {
      steps.push_back({NormalizerRule::Kind::replace, rule.what.space, " "});
      const bool begins = stretch.text.starts_with(rule.what.space) || stretch.text[0] == ' ';
      const bool prepended =
          !begins && (rule.what.prepend == SplitRule::Prepend::always ||
                      (rule.what.prepend == SplitRule::Prepend::first && stretch.begins_text));
      if (prepended) steps.push_back({NormalizerRule::Kind::prepend, rule.what.space});
    }
    Normalizer(steps).apply(changed, desk.matching);
    cut({changed.text, stretch.origin ? changed.origin.data() : nullptr, stretch.begins_text},
        first, desk);
  }

  // Cuts by the rule's pattern.
  void cut(const Stretch& stretch, size_t first, Desk& desk) const {
    const Rule& rule = rules_[first];
    if (!rule.pattern) return split(stretch, first + 1, desk);
    const bool plain = rule.what.behavior == SplitBehavior::isolated;
    const auto encode = [&](size_t begin, size_t end) {
      split(stretch.part(begin, end), first + 1, desk);
    };
    struct Part {
      size_t begin, end;
      bool match;
    };
    std::vector<Part> parts;  // where neighbours may be joined
    const auto take = [&](size_t begin, size_t end, bool match) {
      if (begin == end) return;
      if (plain) return encode(begin, end);
      parts.push_back({begin, end, match != rule.what.inverted});
    };
    const std::string_view text = stretch.text;
    size_t done = 0;  // what comes before is cut
    Span match;
    for (size_t from = 0;
         from < text.size() && rule.pattern->find(text, from, match, desk.matching);) {
      if (match.end == match.begin) {  // an empty match cuts nothing
        from = match.end;
        if (from < text.size()) next_character(text, from);
        continue;
      }
      take(done, match.begin, false);
      take(match.begin, match.end, true);
      done = from = match.end;
    }
    take(done, text.size(), false);
    // Whether a part belongs to the same piece as the one before it.
    const auto joins = [&](const Part& before, const Part& part) {
      switch (rule.what.behavior) {
        case SplitBehavior::contiguous:
          return before.match == part.match;
        case SplitBehavior::merged_with_previous:
          return part.match && !before.match;
        // Of several matches in a row only the last belongs to what follows.
        case SplitBehavior::merged_with_next:
          return before.match && !part.match;
        default:
          return false;
      }
    };
    for (size_t index = 0; index < parts.size();) {
      const size_t begin = index;
      while (++index < parts.size() && joins(parts[index - 1], parts[index])) {
      }
      if (rule.what.behavior == SplitBehavior::removed && parts[begin].match) continue;
      encode(parts[begin].begin, parts[index - 1].end);
    }
  }

  void encode_piece(const Stretch& stretch, Desk& desk) const {
    const std::string_view piece = stretch.text;
    const bool cached = piece.size() <= kLongestCachedPiece && !desk.spans;
    if (cached) {
      if (const auto found = desk.cache.find(piece); found != desk.cache.end()) {
        desk.tokens.insert(desk.tokens.end(), found->second.begin(), found->second.end());
        return;
      }
    }
    const size_t before = desk.tokens.size();
    const auto whole = file_.whole_pieces_first ? file_.vocabulary.find(std::string(piece))
                                                : file_.vocabulary.end();
    desk.piece_spans.clear();
    if (whole != file_.vocabulary.end()) {
      desk.tokens.push_back(whole->second);
      desk.piece_spans.push_back({0, piece.size()});
    } else if (bpe_.encode(piece, desk.workspace, desk.tokens,
                           desk.spans ? &desk.piece_spans : nullptr)) {
      dropped_ = true;
    }
    if (desk.spans) {
      for (const Span& span : desk.piece_spans) desk.spans->push_back(origin_of(stretch, span));
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
  Normalizer normalizer_;
  AddedTokens added_, added_normalized_;
  std::vector<Rule> rules_;
  mutable std::atomic<bool> dropped_ = false;
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

  EncodedText encode_with_spans(std::string_view text, bool) const override {
    EncodedText encoded{encode(text, false), {}};
    for (size_t at = 0; at < text.size(); ++at) encoded.spans.push_back({at, at + 1});
    return encoded;
  }

  std::vector<int32_t> encode_pair(std::string_view first, std::string_view second) const override {
    std::vector<int32_t> tokens = encode(first, false);
    tokens.push_back(kEndOfText);
    const std::vector<int32_t> more = encode(second, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
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
