// Conversations as the text that a model was trained on: five chat formats by name, and recognised
// in a model's own template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "data/span.h"

namespace veil::data {

enum class ChatFormat { chatml, llama3, mistral, gemma, phi3 };
const NameTable<ChatFormat>& names(ChatFormat);

struct ChatMessage {
  std::string role, content;
};

struct ChatTemplate {
  ChatFormat format = ChatFormat::chatml;
  std::string begin, end;      // texts of the tokens that begin a conversation and end a reply
  std::string default_system;  // ChatML: of a conversation that has no system message; "": none
  bool system_allowed = true;
};

struct RenderedChat {
  std::string text;
  // Of each reply of the assistant, in order, its text and the mark that ends it: what a loss on
  // replies covers.
  std::vector<Span> replies;
  std::string refusal;  // why the format cannot render these messages; "": it can
};
// As transformers' apply_chat_template does. Messages are copied as they are, marks included.
RenderedChat render_chat(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                         bool add_generation_prompt);

// The tokens' texts as a tokenizer_config.json has them; nothing: the format's usual ones.
struct ChatTokens {
  std::optional<std::string> begin, end;
};
ChatTemplate named_chat_template(ChatFormat format, const ChatTokens& tokens);

// The format that a Jinja template renders. It is not run: its marks, and all text that it can
// write, decide. One that writes anything else is none of the formats, and `refusal` says what.
struct RecognisedChat {
  std::optional<ChatTemplate> chat;
  std::string refusal;
  bool absent = false;  // there is no template to recognise
};
RecognisedChat recognise_chat_template(const std::string& jinja, const ChatTokens& tokens);

inline constexpr const char* kNoChatTemplate = "none";  // as a name: do not use one
// For the tokenizer at `path` (a file, a folder, or "byte"): `name` is a format's, "none", or "" for
// the template that lies with the tokenizer: chat_template.jinja, else the tokenizer_config.json's.
// What cannot be used is no error until it is needed: `refusal` says what to do. UserError for an
// unknown name.
RecognisedChat find_chat_template(const std::string& path, const std::string& name);

// Without all white space at both ends, as Python's strip() has it.
std::string_view stripped(std::string_view text);

}  // namespace veil::data
