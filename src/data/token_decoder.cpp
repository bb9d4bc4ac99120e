#include "data/token_decoder.h"

#include <cstdint>
#include <optional>

#include "base/utf8.h"
#include "data/bpe.h"

namespace veil::data {
namespace {

constexpr const char* kReplacementCharacter = "\xEF\xBF\xBD";

void replace_all(std::string& text, const std::string& pattern, const std::string& content) {
  if (text.find(pattern) == std::string::npos) return;
  std::string result;
  size_t done = 0;
  for (size_t at; (at = text.find(pattern, done)) != std::string::npos;
       done = at + pattern.size()) {
    result.append(text, done, at - done);
    result += content;
  }
  text = result.append(text, done);
}

// <0xNN>
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
  int value = 0;
  for (const char digit : {token[3], token[4]}) {
    const bool number = digit >= '0' && digit <= '9', upper = digit >= 'A' && digit <= 'F',
               lower = digit >= 'a' && digit <= 'f';
    if (!number && !upper && !lower) return {};
    value = value * 16 + (number ? digit - '0' : upper ? digit - 'A' + 10 : digit - 'a' + 10);
  }
  return static_cast<char>(value);
}

std::vector<std::string> join_fallback_bytes(std::vector<std::string> tokens) {
  std::vector<std::string> result;
  std::string run;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (find_invalid_utf8(run) == std::string::npos) {
      result.push_back(run);
    } else {
      result.insert(result.end(), run.size(), kReplacementCharacter);
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      run.push_back(*byte);
      continue;
    }
    end_run();
    result.push_back(std::move(token));
  }
  end_run();
  return result;
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return all;
}

void strip(std::string& token, const DecoderRule& rule) {
  for (int count = 0; count < rule.begin && token.starts_with(rule.content); ++count)
    token.erase(0, rule.content.size());
  for (int count = 0; count < rule.end && token.ends_with(rule.content); ++count)
    token.erase(token.size() - rule.content.size());
}

}  // namespace

std::string decode_tokens(std::vector<std::string> tokens, const std::vector<DecoderRule>& rules) {
  for (const DecoderRule& rule : rules) {
    switch (rule.kind) {
      case DecoderRule::Kind::byte_level: {
        std::string bytes;
        for (const std::string& token : tokens) bytes += bytes_of_word(token).value_or(token);
        tokens = {repair_utf8(bytes)};
        break;
      }
      case DecoderRule::Kind::replace:
        for (std::string& token : tokens) replace_all(token, rule.pattern, rule.content);
        break;
      case DecoderRule::Kind::byte_fallback:
        tokens = join_fallback_bytes(std::move(tokens));
        break;
      case DecoderRule::Kind::fuse:
        tokens = {joined(tokens)};
        break;
      case DecoderRule::Kind::strip:
        for (std::string& token : tokens) strip(token, rule);
        break;
      case DecoderRule::Kind::metaspace:
        for (size_t index = 0; index < tokens.size(); ++index)
          replace_all(tokens[index], rule.pattern, index == 0 && rule.begin == 1 ? "" : " ");
        break;
    }
  }
  return joined(tokens);
}

}  // namespace veil::data
