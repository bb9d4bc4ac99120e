#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/pattern.h"

namespace veil::data {

namespace {

constexpr size_t kLargestJitStack = size_t{8} << 20;
constexpr uint32_t kMostHeapKib = uint32_t{1} << 20;

// Steps of one search. A pre-tokenizer's expression takes some for each byte, also on long white
// space; one like (a+)+b takes twice as many for each further byte, and is stopped after a moment.
uint32_t match_limit(size_t bytes) {
  constexpr uint64_t kFixed = 2'000'000, kPerByte = 64;
  return static_cast<uint32_t>(
      std::min<uint64_t>(kFixed + kPerByte * bytes, std::numeric_limits<uint32_t>::max()));
}

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Matching::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kLargestJitStack, nullptr);

  State() {
    VEIL_CHECK(data && context, "PCRE2 has no memory");
    pcre2_set_depth_limit(context, std::numeric_limits<uint32_t>::max());
    pcre2_set_heap_limit(context, kMostHeapKib);
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Pattern::Matching::Matching() : state_(std::make_unique<State>()) {}
Pattern::Matching::~Matching() = default;
Pattern::Matching::Matching(Matching&&) noexcept = default;
Pattern::Matching& Pattern::Matching::operator=(Matching&&) noexcept = default;

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  std::string expression = {};
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression) : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = to_pcre2(expression);
  compiled_->expression = expression;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  // Multiline: in Oniguruma ^ and $ belong to lines.
  compiled_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!compiled_->code) {
    user_error("the tokenizer's expression '{}' is not understood: {}", expression,
               pcre2_message(error));
  }
  // if there is no JIT, pcre2_match interprets
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view text, size_t from, Span& match, Matching& matching) const {
  Matching::State& state = *matching.state_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : "");
  const auto attempt = [&](uint32_t options) {
    return pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       state.data, state.context);
  };
  pcre2_set_match_limit(state.context, match_limit(text.size()));
  int found = attempt(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = attempt(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
    user_error(
        "the tokenizer's expression '{}' takes more than {} steps on a text of {} bytes: its "
        "repetitions are nested; use another tokenizer",
        printable(compiled_->expression), match_limit(text.size()), text.size());
  if (found < 0) user_error("the tokenizer's expression fails on a text: {}", pcre2_message(found));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(state.data);
  match = {ends[0], ends[1]};
  return true;
}

namespace {

utf8proc_propval_t combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Canonical ordering: marks of a run stand by their classes, those of one class as they stood.
// utf8proc_decompose would do the same by exchanging neighbours, which a long hostile run makes
// quadratic.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto before = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  for (auto at = characters.begin(); at != characters.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, characters.end(),
                                  [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    if (!std::is_sorted(at, end, before)) std::stable_sort(at, end, before);
    at = end;
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  for (size_t position = 0; position < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(next_character(text, position));
    if (character < 0xC0) {
      characters.push_back(character);
      continue;
    }
    utf8proc_int32_t parts[8];
    const utf8proc_ssize_t count = utf8proc_decompose_char(character, parts, 8, options, nullptr);
    VEIL_CHECK(count >= 0 && count <= 8, "utf8proc takes U+{:04X} apart into {}", character, count);
    characters.insert(characters.end(), parts, parts + count);
  }
  order_marks(characters);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(
      characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options);
  VEIL_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t index = 0; index < length; ++index) {
    append_character(result, static_cast<char32_t>(characters[static_cast<size_t>(index)]));
  }
  return result;
}

}  // namespace veil::data
