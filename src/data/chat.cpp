#include "data/chat.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/chat_skeleton.h"

namespace veil::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// The tokens that the published models have.
struct UsualTokens {
  const char *begin, *end;
};
UsualTokens usual_tokens(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml:
      return {"", "<|im_end|>"};
    case ChatFormat::llama3:
      return {"<|begin_of_text|>", "<|eot_id|>"};
    case ChatFormat::mistral:
      return {"<s>", "</s>"};
    case ChatFormat::gemma:
      return {"<bos>", "<eos>"};
    case ChatFormat::phi3:
      return {"", "<|endoftext|>"};
  }
  return {"", ""};
}

class Rendering {
 public:
  explicit Rendering(const ChatTemplate& chat) : chat_(chat) {}

  RenderedChat render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    result_.text = chat_.begin;
    switch (chat_.format) {
      case ChatFormat::chatml:
        chatml(messages, add_generation_prompt);
        break;
      case ChatFormat::llama3:
        llama3(messages, add_generation_prompt);
        break;
      case ChatFormat::mistral:
        mistral(messages);
        break;
      case ChatFormat::gemma:
        gemma(messages, add_generation_prompt);
        break;
      case ChatFormat::phi3:
        phi3(messages, add_generation_prompt);
        break;
    }
    if (!result_.refusal.empty()) return {"", {}, result_.refusal};
    return std::move(result_);
  }

 private:
  void write(std::string_view text) { result_.text += text; }
  void message(const ChatMessage& message, std::string_view content, std::string_view mark) {
    const size_t begin = result_.text.size();
    write(content);
    write(mark);
    if (message.role == "assistant") result_.replies.push_back({begin, result_.text.size()});
  }
  bool begins_with_system(const std::vector<ChatMessage>& messages) const {
    return !messages.empty() && messages[0].role == "system";
  }

  void chatml(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    if (!chat_.default_system.empty() && !begins_with_system(messages))
      write("<|im_start|>system\n" + chat_.default_system + "<|im_end|>\n");
    for (const ChatMessage& each : messages) {
      write("<|im_start|>" + each.role + "\n");
      message(each, each.content, "<|im_end|>");
      write("\n");
    }
    if (add_generation_prompt) write("<|im_start|>assistant\n");
  }

  void llama3(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    for (const ChatMessage& each : messages) {
      write("<|start_header_id|>" + each.role + "<|end_header_id|>\n\n");
      message(each, stripped(each.content), "<|eot_id|>");
    }
    if (add_generation_prompt) write("<|start_header_id|>assistant<|end_header_id|>\n\n");
  }

  // Calls `turn` with the user's and the assistant's messages, who must take turns, and with what a
  // system message puts in front of the first.
  template <typename Turn>
  void in_turns(const std::vector<ChatMessage>& messages, const Turn& turn) {
    const bool system = begins_with_system(messages);
    if (system && !chat_.system_allowed) {
      result_.refusal = "the model's template allows no system message";
      return;
    }
    const std::string prefix = system ? messages[0].content + "\n\n" : "";
    for (size_t at = system; at < messages.size(); ++at) {
      const bool users_turn = (at - system) % 2 == 0;
      const char* const expected = users_turn ? "user" : "assistant";
      if (messages[at].role != expected) {
        result_.refusal = fmt::format(
            "message {} is of the role '{}' where '{}' is expected: user and assistant "
            "take turns, after at most one system message",
            at + 1, messages[at].role, expected);
        return;
      }
      turn(messages[at], at == static_cast<size_t>(system) ? prefix : "");
    }
  }

  void mistral(const std::vector<ChatMessage>& messages) {
    in_turns(messages, [&](const ChatMessage& each, const std::string& prefix) {
      if (each.role == "user") {
        write(" [INST] " + prefix + each.content + " [/INST]");
      } else {
        write(" ");
        message(each, each.content, chat_.end);
      }
    });
  }

  void gemma(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    in_turns(messages, [&](const ChatMessage& each, const std::string& prefix) {
      write(each.role == "assistant" ? "<start_of_turn>model\n" : "<start_of_turn>user\n");
      write(prefix);
      message(each, stripped(each.content), "<end_of_turn>");
      write("\n");
    });
    if (add_generation_prompt) write("<start_of_turn>model\n");
  }

  void phi3(const std::vector<ChatMessage>& messages, bool add_generation_prompt) {
    for (const ChatMessage& each : messages) {
      if (each.role != "system" && each.role != "user" && each.role != "assistant") continue;
      write("<|" + each.role + "|>\n");
      message(each, each.content, "<|end|>");
      write("\n");
    }
    write(add_generation_prompt ? "<|assistant|>\n" : chat_.end);
  }

  const ChatTemplate& chat_;
  RenderedChat result_;
};

// What tells a format from the others, and what its template has to write.
struct FormatMarks {
  ChatFormat format;
  std::vector<std::string> identifying;
  // Each of these lists is met by one of its texts. {} is what a variable writes.
  std::vector<std::vector<std::string>> required;
  bool trims;  // messages
};

const std::vector<FormatMarks>& format_marks() {
  const std::string v(1, kWrittenByVariable), e(1, kWrittenEndToken);
  static const std::vector<FormatMarks> all = {
      {ChatFormat::chatml,
       {"<|im_start|>", "<|im_end|>"},
       {{"<|im_end|>\n"}, {"<|im_start|>assistant\n", "<|im_start|>" + v + "\n"}},
       false},
      {ChatFormat::llama3,
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       {{"<|end_header_id|>\n\n"}},
       true},
      {ChatFormat::mistral,
       {"[INST]", "[/INST]"},
       {{" [INST] "}, {" [/INST]"}, {" " + v + e, " " + v + "</s>"}},
       false},
      {ChatFormat::gemma,
       {"<start_of_turn>", "<end_of_turn>"},
       {{"<end_of_turn>\n"}, {"<start_of_turn>model\n", "<start_of_turn>" + v + "\n"}},
       true},
      {ChatFormat::phi3,
       {"<|end|>", "<|assistant|>"},
       {{"<|end|>\n"}, {"<|assistant|>\n"}, {"<|user|>\n", "<|" + v + "|>\n"}},
       false}};
  return all;
}

std::string format_list() {
  std::string list;
  for (const auto& entry : names(ChatFormat{})) {
    if (!list.empty()) list += ", ";
    list += entry.name;
  }
  return list;
}

void blank_out(std::string& text, const std::string& what) {
  if (what.empty()) return;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
    std::fill_n(text.begin() + static_cast<int64_t>(at), what.size(), ' ');
}

// The words among `text` that no format writes; "" if there are none.
std::string foreign_words(std::string text, const FormatMarks& marks, const ChatTemplate& chat) {
  for (const std::string& mark : marks.identifying) blank_out(text, mark);
  for (const std::string& mark :
       {std::string("<|system|>"), std::string("<|user|>"), chat.begin, chat.end})
    blank_out(text, mark);
  std::string word, found;
  const auto end_word = [&] {
    if (!word.empty() && word != "system" && word != "user" && word != "assistant" &&
        word != "model" && found.size() < 60)
      found += (found.empty() ? "" : " ") + word;
    word.clear();
  };
  // Phi-3's marks may be put together of a role and signs.
  const std::string signs = marks.format == ChatFormat::phi3 ? "<|>" : "";
  for (const char letter : text) {
    const bool blank = static_cast<unsigned char>(letter) <= ' ';  // char has no sign on ARM
    if (blank || signs.find(letter) != std::string::npos) {
      end_word();
    } else {
      word += letter;
    }
  }
  end_word();
  return found;
}

// "<|im_start|>system\nYou are ...<|im_end|>\n": taken out of what is written.
std::string take_default_system(std::string& written) {
  const std::string head = "<|im_start|>system\n", tail = "<|im_end|>\n";
  for (size_t at = 0; (at = written.find(head, at)) != std::string::npos; at += head.size()) {
    const size_t begin = at + head.size(), end = written.find(tail, begin);
    if (end == std::string::npos) return "";
    const std::string text = written.substr(begin, end - begin);
    if (text.empty() || text.find(kWrittenByVariable) != std::string::npos) continue;
    written.erase(at, end + tail.size() - at);
    return text;
  }
  return "";
}

}  // namespace

const NameTable<ChatFormat>& names(ChatFormat) {
  static const NameTable<ChatFormat> table = {{ChatFormat::chatml, "chatml"},
                                              {ChatFormat::llama3, "llama3"},
                                              {ChatFormat::mistral, "mistral"},
                                              {ChatFormat::gemma, "gemma"},
                                              {ChatFormat::phi3, "phi3"}};
  return table;
}

std::string_view stripped(std::string_view text) {
  size_t begin = 0, end = text.size();
  while (begin < end) {
    size_t after = begin;
    if (!is_python_space(next_character(text, after))) break;
    begin = after;
  }
  while (end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    size_t position = last;
    if (!is_python_space(next_character(text, position))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

RenderedChat render_chat(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                         bool add_generation_prompt) {
  return Rendering(chat).render(messages, add_generation_prompt);
}

ChatTemplate named_chat_template(ChatFormat format, const ChatTokens& tokens) {
  const UsualTokens usual = usual_tokens(format);
  ChatTemplate chat{.format = format, .begin = usual.begin, .end = usual.end, .default_system = ""};
  if (!chat.begin.empty() && tokens.begin) chat.begin = *tokens.begin;
  if (tokens.end) chat.end = *tokens.end;
  return chat;
}

RecognisedChat recognise_chat_template(const std::string& jinja, const ChatTokens& tokens) {
  const ChatSkeleton skeleton = chat_skeleton(jinja);
  std::string written = skeleton.written;
  const auto refuse = [&](const std::string& why) {
    return RecognisedChat{
        {},
        fmt::format("the model's chat template is not one that Veil knows ({}); pass "
                    "`chat_template` with the one to use: {}",
                    why, format_list())};
  };
  const FormatMarks* found = nullptr;
  for (const FormatMarks& marks : format_marks()) {
    const bool all = std::all_of(
        marks.identifying.begin(), marks.identifying.end(),
        [&](const std::string& mark) { return written.find(mark) != std::string::npos; });
    if (all && found) return refuse("it has the marks of two formats");
    if (all) found = &marks;
  }
  if (!found) return refuse("it has the marks of none");
  ChatTemplate chat = named_chat_template(found->format, tokens);
  if (found->format == ChatFormat::chatml) chat.default_system = take_default_system(written);
  // What begins a conversation is a variable, or is there as it is.
  const std::string usual = usual_tokens(found->format).begin;
  const bool by_variable = written.find(kWrittenBeginToken) != std::string::npos;
  if (by_variable) {
    chat.begin = tokens.begin.value_or(usual);
  } else if (usual.empty() || written.find(usual) == std::string::npos) {
    chat.begin = "";
  } else {
    chat.begin = usual;
  }
  if (found->format == ChatFormat::phi3 && written.find(kWrittenEndToken) == std::string::npos &&
      written.find(chat.end) == std::string::npos)
    chat.end = "";
  chat.system_allowed = jinja.find("ystem role not supported") == std::string::npos &&
                        jinja.find("system") != std::string::npos;

  for (const auto& texts : found->required) {
    const bool any = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return written.find(text) != std::string::npos;
    });
    if (!any)
      return refuse(fmt::format("it resembles {}, but writes its marks in another way",
                                name_of(found->format)));
  }
  if (skeleton.trims != found->trims)
    return refuse(fmt::format("it resembles {}, but {} white space around messages",
                              name_of(found->format), skeleton.trims ? "removes" : "keeps"));
  if (const std::string foreign = foreign_words(written, *found, chat); !foreign.empty())
    return refuse(
        fmt::format("it resembles {}, but also writes '{}'", name_of(found->format), foreign));
  return {chat, ""};
}

namespace {

// A token is a text, or an object that has one.
std::optional<std::string> token_text(const json& configuration, const char* key) {
  const auto found = configuration.find(key);
  if (found == configuration.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object()) return found->value("content", std::string());
  return "";
}

// A text, or a list of named ones.
std::string template_text(const json& configuration) {
  const auto found = configuration.find("chat_template");
  if (found == configuration.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const json& entry : *found) {
    if (entry.is_object() && entry.value("name", std::string()) == "default")
      return entry.value("template", std::string());
  }
  return "";
}

}  // namespace

RecognisedChat find_chat_template(const std::string& path, const std::string& name) {
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const fs::path configuration_file = folder / "tokenizer_config.json",
                 jinja_file = folder / "chat_template.jinja";
  const bool files = path != "byte" && path != "bytes" && !path.empty();
  json configuration = json::object();
  if (files && fs::exists(configuration_file, ignored)) {
    configuration = try_json(read_file(configuration_file.string()));
    if (!configuration.is_object())
      user_error("'{}' is no configuration of a tokenizer: it holds no JSON object",
                 configuration_file.string());
  }
  const ChatTokens tokens{token_text(configuration, "bos_token"),
                          token_text(configuration, "eos_token")};
  if (name == kNoChatTemplate) return {};
  if (!name.empty()) {
    for (const auto& entry : names(ChatFormat{})) {
      if (name == entry.name) return {named_chat_template(entry.value, tokens), ""};
    }
    field_error("chat_template", "{}: allowed are {}, {}", name, format_list(), kNoChatTemplate);
  }
  const std::string jinja = files && fs::exists(jinja_file, ignored)
                                ? read_file(jinja_file.string())
                                : template_text(configuration);
  if (!jinja.empty()) return recognise_chat_template(jinja, tokens);
  return {
      {},
      fmt::format("the model has no chat template; pass `chat_template` with the one to use: {}",
                  format_list()),
      true};
}

}  // namespace veil::data
