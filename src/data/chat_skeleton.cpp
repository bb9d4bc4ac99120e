#include "data/chat_skeleton.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

namespace veil::data {
namespace {

bool is_name_letter(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_';
}

std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char letter) {
    return std::isspace(static_cast<unsigned char>(letter)) != 0;
  };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// The constant that begins at `at`, a quote; `at` moves behind it.
std::string string_constant(std::string_view code, size_t& at) {
  const char quote = code[at++];
  std::string text;
  for (; at < code.size() && code[at] != quote; ++at) {
    if (code[at] != '\\' || at + 1 == code.size()) {
      text += code[at];
      continue;
    }
    const char escaped = code[++at];
    text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
  }
  if (at < code.size()) ++at;
  return text;
}

// Constants, variables and signs of an expression.
struct CodeWord {
  enum class Kind { constant, name, sign } kind;
  std::string text;
};
std::vector<CodeWord> code_words(std::string_view code) {
  std::vector<CodeWord> words;
  for (size_t at = 0; at < code.size();) {
    if (code[at] == '\'' || code[at] == '"') {
      words.push_back({CodeWord::Kind::constant, string_constant(code, at)});
    } else if (is_name_letter(code[at])) {
      const size_t begin = at;
      while (at < code.size() && is_name_letter(code[at])) ++at;
      words.push_back({CodeWord::Kind::name, std::string(code.substr(begin, at - begin))});
    } else {
      if (!std::isspace(static_cast<unsigned char>(code[at])))
        words.push_back({CodeWord::Kind::sign, std::string(1, code[at])});
      ++at;
    }
  }
  return words;
}

class SkeletonReader {
 public:
  explicit SkeletonReader(std::string_view source) : source_(source) {}

  ChatSkeleton read() {
    size_t at = 0;
    while (at < source_.size()) {
      const size_t tag = next_tag(at);
      text(source_.substr(at, tag - at), tag);
      if (tag == source_.size()) break;
      at = read_tag(tag);
    }
    return result_;
  }

 private:
  size_t next_tag(size_t from) const {
    for (size_t at = from; at + 1 < source_.size(); ++at) {
      const char second = source_[at + 1];
      if (source_[at] == '{' && (second == '{' || second == '%' || second == '#')) return at;
    }
    return source_.size();
  }

  // Text between tags, by Jinja's rules with trim_blocks and lstrip_blocks.
  void text(std::string_view text, size_t tag) {
    const auto space = [](char letter) {
      return std::isspace(static_cast<unsigned char>(letter)) != 0;
    };
    bool line_begins = tag == text.size();
    if (strip_next_) {
      while (!text.empty() && space(text.front())) text.remove_prefix(1);
    } else if (after_block_ && text.starts_with('\n')) {
      text.remove_prefix(1);
      line_begins = true;
    }
    if (tag + 2 < source_.size()) {
      const char kind = source_[tag + 1], sign = source_[tag + 2];
      if (sign == '-') {
        while (!text.empty() && space(text.back())) text.remove_suffix(1);
      } else if (kind != '{' && sign != '+') {
        size_t end = text.size();
        while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
        if (end > 0) line_begins = text[end - 1] == '\n';
        if (line_begins) text = text.substr(0, end);
      }
    }
    if (!skipping()) result_.written += text;
  }

  // Reads the tag at `tag`; answers where the text behind it begins.
  size_t read_tag(size_t tag) {
    const char kind = source_[tag + 1];
    const char close = kind == '{' ? '}' : kind;
    size_t at = tag + 2;
    for (; at + 1 < source_.size() && !(source_[at] == close && source_[at + 1] == '}'); ++at) {
      if (kind == '#' || (source_[at] != '\'' && source_[at] != '"')) continue;
      string_constant(source_, at);
      --at;
    }
    std::string_view code = source_.substr(tag + 2, std::min(at, source_.size()) - tag - 2);
    strip_next_ = code.ends_with('-');
    after_block_ = kind != '{';
    if (!code.empty() && (code.front() == '-' || code.front() == '+')) code.remove_prefix(1);
    if (!code.empty() && (code.back() == '-' || code.back() == '+')) code.remove_suffix(1);
    code = without_blanks(code);
    if (kind == '{') write_expression(code);
    if (kind == '%') statement(code);
    return std::min(at + 2, source_.size());
  }

  bool skipping() const { return !open_.empty() && open_.back().skipped; }

  // A branch that only tools or images take.
  static bool is_foreign(std::string_view condition) {
    const auto mentions = [&](std::string_view word) {
      return condition.find(word) != std::string_view::npos;
    };
    return (mentions("tool") || mentions("image") || mentions("iterable")) && !mentions("not ");
  }

  void statement(std::string_view code) {
    size_t end = 0;
    while (end < code.size() && is_name_letter(code[end])) ++end;
    const std::string_view word = code.substr(0, end), rest = code.substr(end);
    const bool parent = open_.size() > 1 && open_[open_.size() - 2].skipped;
    if (word == "if" || word == "for") {
      open_.push_back({skipping() || is_foreign(rest)});
    } else if (word == "macro" || word == "filter" || word == "call") {
      open_.push_back({skipping()});
    } else if (word == "elif" && !open_.empty()) {
      open_.back().skipped = parent || is_foreign(rest);
    } else if (word == "else" && !open_.empty()) {
      open_.back().skipped = parent;
    } else if (word == "set") {
      const size_t equals = rest.find('=');
      if (equals != std::string_view::npos)
        set(std::string(without_blanks(rest.substr(0, equals))), rest.substr(equals + 1));
    } else if ((word == "endif" || word == "endfor" || word == "endmacro" || word == "endfilter" ||
                word == "endcall") &&
               !open_.empty()) {
      open_.pop_back();
    }
  }

  // A variable that is a constant is written where it is used, any other where it is set.
  void set(const std::string& name, std::string_view code) {
    if (skipping()) return;
    const std::vector<CodeWord> words = code_words(code);
    constants_.erase(name);
    if (words.size() == 1 && words[0].kind == CodeWord::Kind::constant) {
      constants_[name] = words[0].text;
    } else {
      write_expression(code);
    }
  }

  void write_variable() {
    if (result_.written.empty() || result_.written.back() != kWrittenByVariable)
      result_.written += kWrittenByVariable;
  }

  void write_expression(std::string_view code) {
    if (skipping()) return;
    const std::vector<CodeWord> words = code_words(code);
    const auto sign_at = [&](size_t index, const char* sign) {
      return index < words.size() && words[index].kind == CodeWord::Kind::sign &&
             words[index].text == sign;
    };
    for (size_t index = 0; index < words.size(); ++index) {
      const CodeWord& word = words[index];
      // An error's message is not written into a text.
      if (word.text == "raise_exception" && word.kind == CodeWord::Kind::name) return;
      if (word.kind == CodeWord::Kind::constant) {
        const bool compared = (index > 0 && sign_at(index - 1, "=")) || sign_at(index + 1, "=") ||
                              sign_at(index + 1, "!");
        const bool subscript =
            index > 0 && (sign_at(index - 1, "[") ||
                          (index > 1 && sign_at(index - 1, "(") && words[index - 2].text == "get"));
        if (!compared && !subscript) result_.written += word.text;
      } else if (word.kind == CodeWord::Kind::name) {
        write_name(word.text);
      }
    }
  }

  void write_name(const std::string& name) {
    if (name == "bos_token") {
      result_.written += kWrittenBeginToken;
    } else if (name == "eos_token") {
      result_.written += kWrittenEndToken;
    } else if (name == "trim" || name == "strip") {
      result_.trims = true;
    } else if (const auto constant = constants_.find(name); constant != constants_.end()) {
      result_.written += constant->second;
    } else {
      write_variable();
    }
  }

  struct Block {
    bool skipped;
  };
  std::string_view source_;
  std::vector<Block> open_;
  std::map<std::string, std::string> constants_;  // by variable
  bool strip_next_ = false, after_block_ = false;
  ChatSkeleton result_;
};

}  // namespace

ChatSkeleton chat_skeleton(const std::string& jinja) {
  return SkeletonReader(jinja).read();
}

}  // namespace veil::data
