#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>

#include "base/error.h"
#include "data/pattern.h"

namespace veil::data {

namespace {

constexpr size_t kLargestJitStack = size_t{8} << 20;

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
    // A text's length bounds the work of a pre-tokenizer's expression; PCRE2's own limits would refuse long white space.
    pcre2_set_match_limit(context, std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(context, std::numeric_limits<uint32_t>::max());
    pcre2_set_heap_limit(context, std::numeric_limits<uint32_t>::max());
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
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression) : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = to_pcre2(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  // Multiline: in Oniguruma ^ and $ belong to lines.
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!compiled_->code) {
    user_error("the tokenizer's expression '{}' is not understood: {}", expression, pcre2_message(error));
  }
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view text, size_t from, Span& match, Matching& matching) const {
  Matching::State& state = *matching.state_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : "");
  const auto attempt = [&](uint32_t options) {
    return pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options, state.data,
                       state.context);
  };
  int found = attempt(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = attempt(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) user_error("the tokenizer's expression fails on a text: {}", pcre2_message(found));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(state.data);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace veil::data
