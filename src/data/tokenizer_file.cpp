#include "data/tokenizer_file.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/bpe.h"
#include "data/content_hash.h"

namespace veil::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The expression that ByteLevel brings along unless `use_regex` is false: GPT-2's.
constexpr const char* kByteLevelExpression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr int64_t kLargestToken = 1 << 24;

class Reader {
 public:
  Reader(std::string path, const json& root) : path_(std::move(path)), root_(root) {}

  TokenizerFile read() {
    const json& splitter = part(root_, "pre_tokenizer");
    file_.first.by_byte = has_byte_level(splitter);
    read_model(root_.at("model"));
    read_normalizer(part(root_, "normalizer"));
    read_pre_tokenizer(splitter);
    read_decoder(part(root_, "decoder"));
    read_added_tokens(part(root_, "added_tokens"));
    file_.single = {{TemplatePart::Kind::text}};
    file_.pair = {{TemplatePart::Kind::text}, {TemplatePart::Kind::second_text}};
    read_template(part(root_, "post_processor"));
    file_.identity.vocabulary_size = static_cast<int64_t>(file_.known.size());
    return std::move(file_);
  }

 private:
  [[noreturn]] void unsupported(const std::string& what) const {
    user_error(
        "tokenizer '{}' is {}: allowed is BPE, byte-level (as Llama 3, Qwen and GPT-2 have it) or "
        "with byte fallback (Mistral, Gemma, Phi-3), or the tokenizer `byte`",
        path_, what);
  }

  static const json& part(const json& object, const char* key) {
    static const json nothing;
    const auto found = object.find(key);
    return found == object.end() ? nothing : *found;
  }
  static std::string kind(const json& object) {
    return object.is_null() ? "" : object.value("type", std::string());
  }
  static bool flag(const json& object, const char* key, bool otherwise) {
    const json& value = part(object, key);
    return value.is_null() ? otherwise : value.get<bool>();
  }
  static std::string word(const json& object, const char* key) {
    const json& value = part(object, key);
    return value.is_null() ? std::string() : value.get<std::string>();
  }

  // Not get<int64_t>(), which takes a fraction beyond its range.
  static int64_t whole_number(const json& value) {
    if (!value.is_number_integer())
      throw json::type_error::create(302, "a whole number is expected", nullptr);
    return value.get<int64_t>();
  }

  static int count_of(const json& object, const char* key) {
    return static_cast<int>(std::clamp<int64_t>(whole_number(object.at(key)), 0, INT_MAX));
  }

  static bool has_byte_level(const json& splitter) {
    if (kind(splitter) != "Sequence") return kind(splitter) == "ByteLevel";
    const json& list = splitter.at("pretokenizers");
    return std::any_of(list.begin(), list.end(), has_byte_level);
  }

  void remember(int64_t token, std::string text) {
    if (token < 0 || token > kLargestToken) {
      user_error("tokenizer '{}': token {} is not between 0 and {}", path_, token, kLargestToken);
    }
    const auto index = static_cast<size_t>(token);
    if (index >= file_.known.size()) {
      file_.known.resize(index + 1);
      file_.text_of_token.resize(index + 1);
    }
    file_.known[index] = true;
    file_.text_of_token[index] = std::move(text);
  }

  void read_model(const json& model) {
    const std::string type = kind(model);
    const json& vocabulary = part(model, "vocab");
    const json& merges = part(model, "merges");
    // Early files name no type; only BPE has merges.
    if (!type.empty() && type != "BPE") unsupported("of the kind " + type);
    if (type.empty() && vocabulary.is_array()) unsupported("of the kind Unigram");
    if (type.empty() && merges.is_null()) unsupported("of the kind WordPiece");
    if (!word(model, "continuing_subword_prefix").empty())
      unsupported("BPE with a continuing_subword_prefix");
    if (!word(model, "end_of_word_suffix").empty()) unsupported("BPE with an end_of_word_suffix");
    if (const json& dropout = part(model, "dropout");
        !dropout.is_null() && dropout.get<double>() != 0) {
      unsupported("BPE with dropout");
    }
    file_.whole_pieces_first = flag(model, "ignore_merges", false);
    const bool by_byte = file_.first.by_byte;
    for (const auto& [text, token] : vocabulary.get_ref<const json::object_t&>()) {
      remember(whole_number(token), text);
      by_text_[text] = token.get<int32_t>();
      const auto bytes = by_byte ? bytes_of_word(text) : text;
      if (bytes) file_.vocabulary[*bytes] = token.get<int32_t>();
    }
    for (const json& merge : merges) read_merge(merge);
    read_first_tokens(model);
  }

  void read_first_tokens(const json& model) {
    FirstTokens& first = file_.first;
    const bool fallback = flag(model, "byte_fallback", false);
    const std::string unknown = word(model, "unk_token");
    if (!unknown.empty()) {
      const auto found = by_text_.find(unknown);
      if (found == by_text_.end())
        user_error("tokenizer '{}': its unknown token '{}' is not in the vocabulary", path_,
                   unknown);
      first.unknown = found->second;
    }
    first.fuse_unknown = flag(model, "fuse_unk", false);
    if (first.by_byte && fallback) unsupported("byte-level BPE with byte_fallback");
    if (!first.by_byte && !fallback && first.unknown < 0)
      unsupported("BPE without a byte-level pre-tokenizer, byte_fallback or an unknown token");
    int found_bytes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = first.by_byte
                             ? file_.vocabulary.find(std::string(1, static_cast<char>(byte)))
                             : file_.vocabulary.find(fmt::format("<0x{:02X}>", byte));
      const bool known = found != file_.vocabulary.end() && (first.by_byte || fallback);
      found_bytes += known;
      first.of_byte[static_cast<size_t>(byte)] = known ? found->second : -1;
    }
    // A few bytes may be missing, but a table without any is of another kind.
    if (first.by_byte && found_bytes == 0) unsupported("BPE whose vocabulary has no bytes");
    if (first.by_byte) return;
    for (const auto& [text, token] : file_.vocabulary) {
      size_t position = 0;
      if (text.empty() || find_invalid_utf8(text) != std::string::npos) continue;
      const char32_t character = next_character(text, position);
      if (position == text.size()) first.of_character[character] = token;
    }
  }

  // "a b" in older files, ["a", "b"] in newer ones.
  void read_merge(const json& merge) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      left = text.substr(0, space);
      right = space == std::string::npos ? "" : text.substr(space + 1);
    } else {
      left = merge.at(0).get<std::string>();
      right = merge.at(1).get<std::string>();
    }
    const auto token = [&](const std::string& text) {
      const auto found = by_text_.find(text);
      if (found == by_text_.end()) {
        user_error("tokenizer '{}': merge '{} {}' needs the token '{}', which the vocabulary lacks",
                   path_, left, right, text);
      }
      return found->second;
    };
    file_.merges.push_back({token(left), token(right), token(left + right)});
  }

  // A pattern is a text, {"String": ...}, or an expression, {"Regex": ...}.
  struct WrittenPattern {
    std::string text;
    bool is_expression;
  };
  static WrittenPattern pattern_of(const json& object) {
    const json& pattern = object.at("pattern");
    if (pattern.is_string()) return {pattern.get<std::string>(), false};
    if (pattern.contains("String")) return {pattern["String"].get<std::string>(), false};
    return {pattern.at("Regex").get<std::string>(), true};
  }

  void read_normalizer(const json& normalizer) {
    const std::string type = kind(normalizer);
    if (type == "Sequence") {
      for (const json& each : normalizer.at("normalizers")) read_normalizer(each);
    } else if (type == "NFC") {
      file_.normalizers.push_back({NormalizerRule::Kind::nfc, ""});
    } else if (type == "Prepend") {
      file_.normalizers.push_back(
          {NormalizerRule::Kind::prepend, normalizer.at("prepend").get<std::string>()});
    } else if (type == "Replace") {
      const WrittenPattern pattern = pattern_of(normalizer);
      if (pattern.text.empty()) unsupported("BPE with a Replace of nothing");
      file_.normalizers.push_back({NormalizerRule::Kind::replace,
                                   normalizer.at("content").get<std::string>(), pattern.text,
                                   pattern.is_expression});
    } else if (!normalizer.is_null()) {
      unsupported(fmt::format(
          "BPE with the normalizer {} (NFC, Prepend, Replace or none is supported)", type));
    }
  }

  SplitBehavior behavior_of(const json& splitter) const {
    const auto name = splitter.at("behavior").get<std::string>();
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    unsupported(fmt::format("BPE with a Split of behavior {}", name));
  }

  void read_pre_tokenizer(const json& splitter) {
    const std::string type = kind(splitter);
    // The pieces that ByteLevel makes are written in its alphabet, which other rules do not expect.
    if (!file_.splits.empty() && byte_level_seen_ && type != "Sequence")
      unsupported(fmt::format("BPE with the pre-tokenizer {} after ByteLevel", type));
    if (type == "Sequence") {
      for (const json& each : splitter.at("pretokenizers")) read_pre_tokenizer(each);
    } else if (type == "ByteLevel") {
      byte_level_seen_ = true;
      file_.splits.push_back(
          {.prefix_space = flag(splitter, "add_prefix_space", true),
           .expression = flag(splitter, "use_regex", true) ? kByteLevelExpression : ""});
    } else if (type == "Split") {
      const WrittenPattern pattern = pattern_of(splitter);
      if (pattern.text.empty()) unsupported("BPE with a Split by nothing");
      file_.splits.push_back(
          {.expression = pattern.is_expression ? pattern.text : escaped(pattern.text),
           .behavior = behavior_of(splitter),
           .inverted = flag(splitter, "invert", false)});
    } else if (type == "Digits") {
      file_.splits.push_back(
          {.expression = flag(splitter, "individual_digits", false) ? "\\p{N}" : "\\p{N}+"});
    } else if (type == "Metaspace") {
      read_metaspace(splitter);
    } else if (!splitter.is_null()) {
      unsupported(fmt::format("BPE with the pre-tokenizer {}", type));
    }
  }

  void read_metaspace(const json& splitter) {
    SplitRule rule{.space = space_of(splitter), .prepend = prepend_of(splitter)};
    if (flag(splitter, "split", true)) {
      rule.expression = escaped(rule.space);
      rule.behavior = SplitBehavior::merged_with_next;
    }
    file_.splits.push_back(std::move(rule));
  }
  static std::string space_of(const json& object) {
    const std::string space = word(object, "replacement");
    return space.empty() ? "\u2581" : space;
  }
  SplitRule::Prepend prepend_of(const json& object) const {
    const std::string scheme = word(object, "prepend_scheme");
    if (scheme == "first") return SplitRule::Prepend::first;
    if (scheme == "never") return SplitRule::Prepend::never;
    if (!scheme.empty() && scheme != "always")
      unsupported(fmt::format("BPE with a Metaspace of prepend_scheme {}", scheme));
    // Older files have no scheme.
    return flag(object, "add_prefix_space", true) ? SplitRule::Prepend::always
                                                  : SplitRule::Prepend::never;
  }

  // An expression that matches the text itself.
  static std::string escaped(const std::string& text) {
    std::string result;
    for (const char letter : text) {
      if (std::ispunct(static_cast<unsigned char>(letter))) result += '\\';
      result += letter;
    }
    return result;
  }

  void read_decoder(const json& decoder) {
    const std::string type = kind(decoder);
    if (type == "Sequence") {
      for (const json& each : decoder.at("decoders")) read_decoder(each);
    } else if (type == "ByteLevel") {
      file_.decoders.push_back({DecoderRule::Kind::byte_level});
    } else if (type == "ByteFallback") {
      file_.decoders.push_back({DecoderRule::Kind::byte_fallback});
    } else if (type == "Fuse") {
      file_.decoders.push_back({DecoderRule::Kind::fuse});
    } else if (type == "Replace" && !pattern_of(decoder).is_expression &&
               !pattern_of(decoder).text.empty()) {
      file_.decoders.push_back({DecoderRule::Kind::replace, pattern_of(decoder).text,
                                decoder.at("content").get<std::string>()});
    } else if (type == "Strip") {
      file_.decoders.push_back({DecoderRule::Kind::strip, "",
                                decoder.at("content").get<std::string>(),
                                count_of(decoder, "start"), count_of(decoder, "stop")});
    } else if (type == "Metaspace") {
      file_.decoders.push_back({DecoderRule::Kind::metaspace, space_of(decoder), "",
                                prepend_of(decoder) == SplitRule::Prepend::never ? 0 : 1});
    } else {
      unsupported(fmt::format("BPE with the decoder {}", decoder.is_null() ? "none" : type));
    }
  }

  void read_added_tokens(const json& list) {
    for (const json& entry : list) {
      const auto content = entry.at("content").get<std::string>();
      const auto token = whole_number(entry.at("id"));
      if (content.empty()) continue;
      if (flag(entry, "single_word", false))
        unsupported(fmt::format("BPE whose token '{}' asks for single_word", content));
      remember(token, content);
      const AddedToken added{.token = static_cast<int32_t>(token),
                             .content = content,
                             .special = flag(entry, "special", false),
                             .strip_left = flag(entry, "lstrip", false),
                             .strip_right = flag(entry, "rstrip", false)};
      by_text_[content] = added.token;
      (flag(entry, "normalized", !added.special) ? file_.added_normalized : file_.added)
          .push_back(added);
    }
  }

  void read_template(const json& processor) {
    const std::string type = kind(processor);
    if (type == "Sequence") {
      for (const json& each : processor.at("processors")) read_template(each);
    } else if (type == "TemplateProcessing") {
      file_.single = template_parts(processor, "single");
      if (!part(processor, "pair").is_null()) file_.pair = template_parts(processor, "pair");
    } else if (type == "RobertaProcessing") {
      const TemplatePart text{TemplatePart::Kind::text}, second{TemplatePart::Kind::second_text};
      const auto named = [&](const char* key) {
        return TemplatePart{TemplatePart::Kind::token,
                            known_token(whole_number(processor.at(key).at(1)))};
      };
      const TemplatePart begin = named("cls"), end = named("sep");
      file_.single = {begin, text, end};
      file_.pair = {begin, text, end, end, second, end};
    } else if (!processor.is_null() && type != "ByteLevel") {
      unsupported(fmt::format("BPE with the post-processor {}", type));
    }
  }

  std::vector<TemplatePart> template_parts(const json& processor, const char* key) const {
    std::vector<TemplatePart> parts;
    for (const json& item : processor.at(key)) {
      if (item.contains("Sequence")) {
        const bool second = item["Sequence"].at("id") == "B";
        parts.push_back({second ? TemplatePart::Kind::second_text : TemplatePart::Kind::text});
        continue;
      }
      const auto name = item.at("SpecialToken").at("id").get<std::string>();
      for (const json& token : processor.at("special_tokens").at(name).at("ids"))
        parts.push_back({TemplatePart::Kind::token, known_token(whole_number(token))});
    }
    return parts;
  }

  int32_t known_token(int64_t token) const {
    if (token < 0 || token >= static_cast<int64_t>(file_.known.size()) ||
        !file_.known[static_cast<size_t>(token)]) {
      user_error("tokenizer '{}': its template names the token {}, which the vocabulary lacks",
                 path_, token);
    }
    return static_cast<int32_t>(token);
  }

  std::string path_;
  const json& root_;
  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> by_text_;
  bool byte_level_seen_ = false;
};

std::optional<int32_t> token_named(const TokenizerFile& file, const std::string& content) {
  for (const auto* list : {&file.added, &file.added_normalized}) {
    for (const AddedToken& added : *list) {
      if (added.content == content) return added.token;
    }
  }
  return {};
}

// The token that the configuration names under `key`, else the first of the usual names that there
// is.
std::optional<int32_t> special_token(const TokenizerFile& file, const json& configuration,
                                     const char* key, const std::vector<std::string>& usual) {
  if (const auto entry = configuration.find(key); entry != configuration.end()) {
    if (entry->is_string()) return token_named(file, entry->get<std::string>());
    if (entry->is_object()) return token_named(file, entry->value("content", std::string()));
    return {};
  }
  for (const std::string& name : usual) {
    if (const auto token = token_named(file, name)) return token;
  }
  return {};
}

json parse(const std::string& path, const std::string& text) {
  try {
    json root = parse_json(text);
    if (!root.is_object()) user_error("'{}' is no tokenizer: it holds no JSON object", path);
    return root;
  } catch (const json::exception& error) {
    user_error("'{}' is no tokenizer: {}", path, error.what());
  }
}

std::string name_of_tokenizer(const fs::path& file) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  const std::string stem = whole.stem().string(), folder = whole.parent_path().filename().string();
  return stem == "tokenizer" && !folder.empty() ? folder : stem;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::string& path) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const std::string file_path = folder ? join_path(path, "tokenizer.json") : path;
  if (!fs::exists(file_path, ignored)) {
    field_error("tokenizer",
                "{}: {}; allowed are a folder with a tokenizer.json, such a file, or the word byte",
                path, folder ? "the folder holds no tokenizer.json" : "no such file or folder");
  }
  const std::string text = read_file(file_path);
  const json root = parse(file_path, text);
  json configuration = json::object();
  const std::string beside = (fs::path(file_path).parent_path() / "tokenizer_config.json").string();
  if (fs::exists(beside, ignored)) configuration = parse(beside, read_file(beside));
  try {
    TokenizerFile file = Reader(file_path, root).read();
    file.identity.name = name_of_tokenizer(file_path);
    file.identity.hash = fmt::format("{:016x}", content_hash(text));
    file.identity.begin_of_text =
        special_token(file, configuration, "bos_token", {"<|begin_of_text|>", "<s>"});
    file.identity.end_of_text =
        special_token(file, configuration, "eos_token",
                      {"<|end_of_text|>", "<|endoftext|>", "</s>", "<|im_end|>"});
    file.identity.padding =
        special_token(file, configuration, "pad_token",
                      {"<|finetune_right_pad_id|>", "<|pad|>", "<pad>", "<|endoftext|>"});
    return file;
  } catch (const json::exception& error) {
    user_error("'{}' is no tokenizer as Hugging Face writes it: {}", file_path, error.what());
  }
}

namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t space_before(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    size_t begin = end - 1;
    while (begin > floor && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t position = begin;
    if (!is_space(next_character(text, position))) break;
    end = begin;
  }
  return end;
}

size_t space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t position = begin;
    if (!is_space(next_character(text, position))) break;
    begin = position;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  // The longest of those that begin alike comes first: descending order puts a word before its own
  // prefixes.
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content > b.content; });
  by_first_.fill({0, 0});
  for (size_t index = 0; index < tokens_.size(); ++index) {
    VEIL_CHECK(!tokens_[index].content.empty(), "an added token without content");
    auto& range = by_first_[static_cast<uint8_t>(tokens_[index].content[0])];
    if (range.second == 0) range.first = index;
    range.second = index + 1;
  }
}

const AddedToken* AddedTokens::match_at(std::string_view text, size_t position) const {
  const auto [first, last] = by_first_[static_cast<uint8_t>(text[position])];
  for (size_t index = first; index < last; ++index) {
    if (text.substr(position).starts_with(tokens_[index].content)) return &tokens_[index];
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t position = 0; position < text.size();) {
    const AddedToken* const found = match_at(text, position);
    if (!found) {
      ++position;
      continue;
    }
    const size_t end_of_match = position + found->content.size();
    const size_t begin = found->strip_left ? space_before(text, position, done) : position;
    const size_t end = found->strip_right ? space_after(text, end_of_match) : end_of_match;
    if (begin > done) parts.push_back({{done, begin}, -1});
    parts.push_back({{begin, end}, found->token});
    done = end;
    // White space that the token takes along may hold another added token, which counts as well.
    position = end_of_match;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace veil::data
