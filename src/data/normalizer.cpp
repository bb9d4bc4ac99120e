#include "data/normalizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace veil::data {
namespace {

// Collects the changed text; every part of it comes from a part of the one before.
class Rewriting {
 public:
  explicit Rewriting(TrackedText& text) : text_(text), tracked_(!text.origin.empty()) {
    result_.text.reserve(text.text.size() + 8);
    if (tracked_) result_.origin.reserve(text.text.size() + 8);
  }
  void keep(Span span) {
    result_.text.append(text_.text, span.begin, span.end - span.begin);
    if (!tracked_) return;
    const auto first = text_.origin.begin();
    result_.origin.insert(result_.origin.end(), first + static_cast<int64_t>(span.begin),
                          first + static_cast<int64_t>(span.end));
  }
  // `span` is not empty, or `content` is.
  void put(std::string_view content, Span span) {
    result_.text += content;
    if (!tracked_ || content.empty()) return;
    result_.origin.insert(result_.origin.end(), content.size(),
                          {text_.origin[span.begin].begin, text_.origin[span.end - 1].end});
  }
  void finish() { text_ = std::move(result_); }

 private:
  TrackedText& text_;
  const bool tracked_;
  TrackedText result_;
};

size_t first_character_bytes(std::string_view text) {
  size_t position = 0;
  next_character(text, position);
  return position;
}

void prepend_to(TrackedText& text, const std::string& content) {
  if (text.text.empty()) return;
  Rewriting rewriting(text);
  rewriting.put(content, {0, first_character_bytes(text.text)});
  rewriting.keep({0, text.text.size()});
  rewriting.finish();
}

void replace_in(TrackedText& text, const NormalizerRule& rule, const Pattern* expression,
                Pattern::Matching& matching) {
  const std::string_view all = text.text;
  Rewriting rewriting(text);
  size_t done = 0;
  Span match;
  const auto find = [&](size_t from) {
    if (expression) return expression->find(all, from, match, matching);
    const size_t found = all.find(rule.pattern, from);
    match = {found, found + rule.pattern.size()};
    return found != std::string_view::npos;
  };
  for (size_t from = 0; from < all.size() && find(from);) {
    if (match.end == match.begin) {
      from = match.end;
      if (from < all.size()) next_character(all, from);
      continue;
    }
    rewriting.keep({done, match.begin});
    rewriting.put(rule.content, match);
    done = from = match.end;
  }
  if (done == 0) return;
  rewriting.keep({done, all.size()});
  rewriting.finish();
}

// A word's changed part: what is between the characters that both forms begin and end with.
void compose_word(std::string_view word, Span span, Rewriting& rewriting) {
  const std::string composed = to_nfc(word);
  if (composed == word) return rewriting.keep(span);
  const auto inside = [](std::string_view text, size_t at) {
    return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
  };
  const size_t shorter = std::min(word.size(), composed.size());
  size_t head = 0, tail = 0;
  while (head < shorter && word[head] == composed[head]) ++head;
  while (head > 0 && (inside(word, head) || inside(composed, head))) --head;
  while (tail < shorter - head &&
         word[word.size() - 1 - tail] == composed[composed.size() - 1 - tail])
    ++tail;
  while (tail > 0 && (inside(word, word.size() - tail) || inside(composed, composed.size() - tail)))
    --tail;
  rewriting.keep({span.begin, span.begin + head});
  rewriting.put(std::string_view(composed).substr(head, composed.size() - head - tail),
                {span.begin + head, span.end - tail});
  rewriting.keep({span.end - tail, span.end});
}

void compose(TrackedText& text) {
  if (surely_nfc(text.text)) return;
  if (text.origin.empty()) {
    text.text = to_nfc(text.text);
    return;
  }
  // No character below U+0300 combines with what stands before it: a word may begin there.
  const std::string_view all = text.text;
  Rewriting rewriting(text);
  size_t begin = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t here = at;
    if (next_character(all, at) >= 0x300 || here == begin) continue;
    compose_word(all.substr(begin, here - begin), {begin, here}, rewriting);
    begin = here;
  }
  compose_word(all.substr(begin), {begin, all.size()}, rewriting);
  rewriting.finish();
}

}  // namespace

TrackedText track(std::string_view text, size_t offset) {
  TrackedText result{std::string(text), {}};
  result.origin.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    next_character(text, position);
    result.origin.insert(result.origin.end(), position - begin,
                         {offset + begin, offset + position});
  }
  return result;
}

Normalizer::Normalizer(const std::vector<NormalizerRule>& rules) {
  for (const NormalizerRule& rule : rules) {
    rules_.push_back({rule, {}});
    if (rule.is_expression) rules_.back().expression.emplace(rule.pattern);
  }
}

void Normalizer::apply(TrackedText& text, Pattern::Matching& matching) const {
  for (const Rule& rule : rules_) {
    switch (rule.what.kind) {
      case NormalizerRule::Kind::nfc:
        compose(text);
        break;
      case NormalizerRule::Kind::prepend:
        prepend_to(text, rule.what.content);
        break;
      case NormalizerRule::Kind::replace:
        replace_in(text, rule.what, rule.expression ? &*rule.expression : nullptr, matching);
        break;
    }
  }
}

bool Normalizer::surely_unchanged(std::string_view text) const {
  return std::all_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return rule.what.kind == NormalizerRule::Kind::nfc && surely_nfc(text);
  });
}

}  // namespace veil::data
