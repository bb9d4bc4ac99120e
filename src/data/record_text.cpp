#include "data/record_text.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace veil::data {
namespace {

using nlohmann::json;

// The keys of two texts whose relation is to be classified.
constexpr std::array<std::pair<const char*, const char*>, 5> kPairKeys = {{
    {"premise", "hypothesis"},
    {"sentence1", "sentence2"},
    {"text_a", "text_b"},
    {"question1", "question2"},
    {"text1", "text2"},
}};

bool has_key(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Sets `text` and answers "", or says what is wrong.
std::string text_under(const json& object, const std::string& key, std::string& text) {
  const auto found = object.find(key);
  if (found == object.end()) return fmt::format("there is no key '{}'", key);
  if (!found->is_string()) return fmt::format("the value of '{}' is no text", key);
  text = found->get<std::string>();
  return "";
}

// A message's content is a text, or a list of parts that are texts.
std::string message_content(const json& content, std::string& text) {
  if (content.is_string()) {
    text = content.get<std::string>();
    return "";
  }
  if (!content.is_array()) return "its content is no text";
  for (const json& part : content) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text") ||
        !part["text"].is_string())
      return "its content has a part that is no text";
    text += part["text"].get<std::string>();
  }
  return "";
}

std::string read_messages(const json& given, std::vector<ChatMessage>& messages) {
  // A table has them as a text.
  const json parsed = given.is_string() ? try_json(given.get_ref<const std::string&>()) : json();
  const json& list = given.is_string() ? parsed : given;
  if (!list.is_array()) return "the messages are no list";
  for (const json& each : list) {
    ChatMessage message;
    const std::string place = fmt::format("message {}", messages.size() + 1);
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string())
      return place + " is no object with a role and a content";
    message.role = each["role"].get<std::string>();
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      return fmt::format("{} has the role '{}'; allowed are system, user, assistant", place,
                         message.role);
    if (has_key(each, "tool_calls")) return place + " has tool_calls, which are not supported";
    if (!each.contains("content")) return place + " has no content";
    if (const std::string wrong = message_content(each["content"], message.content); !wrong.empty())
      return fmt::format("{}: {}", place, wrong);
    messages.push_back(std::move(message));
  }
  return messages.empty() ? "the conversation has no message" : "";
}

// The replies among the first `given` messages are part of the prompt.
std::string render_messages(const std::vector<ChatMessage>& messages, size_t given,
                            const RecordRules& rules, RecordText& record) {
  if (!rules.chat.chat) {
    if (!rules.chat.refusal.empty()) user_error("{}", rules.chat.refusal);
    field_error("chat_template", "none: the data holds conversations, which need a template");
  }
  RenderedChat rendered = render_chat(*rules.chat.chat, messages, false);
  if (!rendered.refusal.empty()) return rendered.refusal;
  size_t prompted = 0;
  for (size_t message = 0; message < given; ++message)
    prompted += messages[message].role == "assistant";
  record.text = std::move(rendered.text);
  record.replies.assign(rendered.replies.begin() + static_cast<int64_t>(prompted),
                        rendered.replies.end());
  record.whole = true;
  return "";
}

void join(const std::string& prompt, const std::string& reply, RecordText& record) {
  record.text = prompt + reply;
  if (!reply.empty()) record.replies = {{prompt.size(), record.text.size()}};
}

std::string read_chat(const json& object, const RecordRules& rules, RecordText& record) {
  const auto found = object.find("messages");
  if (found == object.end()) return "there is no key 'messages'";
  std::vector<ChatMessage> messages;
  if (const std::string wrong = read_messages(*found, messages); !wrong.empty()) return wrong;
  return render_messages(messages, 0, rules, record);
}

std::string read_completion(const json& object, const RecordRules& rules, RecordText& record) {
  // Both may be lists of messages.
  if (has_key(object, "prompt") && object["prompt"].is_array() && has_key(object, "completion")) {
    std::vector<ChatMessage> messages, replies;
    std::string wrong = read_messages(object["prompt"], messages);
    if (wrong.empty()) wrong = read_messages(object["completion"], replies);
    if (!wrong.empty()) return wrong;
    const size_t given = messages.size();
    messages.insert(messages.end(), replies.begin(), replies.end());
    return render_messages(messages, given, rules, record);
  }
  std::string prompt, completion;
  std::string wrong = text_under(object, "prompt", prompt);
  if (wrong.empty()) wrong = text_under(object, "completion", completion);
  if (wrong.empty()) join(prompt, completion, record);
  return wrong;
}

std::string read_instruction(const json& object, const RecordRules& rules, RecordText& record) {
  std::string instruction, input, output;
  std::string wrong = text_under(object, "instruction", instruction);
  if (wrong.empty() && has_key(object, "input")) wrong = text_under(object, "input", input);
  if (wrong.empty()) wrong = text_under(object, "output", output);
  if (!wrong.empty()) return wrong;
  if (!rules.chat.chat && !rules.chat.absent && !rules.chat.refusal.empty())
    user_error("{}", rules.chat.refusal);
  if (rules.chat.chat) {
    const std::string request = input.empty() ? instruction : instruction + "\n\n" + input;
    return render_messages({{"user", request}, {"assistant", output}}, 0, rules, record);
  }
  // The words of Stanford's Alpaca, which many models have seen.
  const std::string prompt =
      input.empty()
          ? fmt::format(
                "Below is an instruction that describes a task. Write a response that "
                "appropriately completes the request.\n\n### Instruction:\n{}\n\n### "
                "Response:\n",
                instruction)
          : fmt::format(
                "Below is an instruction that describes a task, paired with an input that "
                "provides further context. Write a response that appropriately completes "
                "the request.\n\n### Instruction:\n{}\n\n### Input:\n{}\n\n### "
                "Response:\n",
                instruction, input);
  join(prompt, output, record);
  return "";
}

std::string read_text(const json& object, const RecordRules& rules, RecordText& record) {
  if (object.contains(rules.text_key)) return text_under(object, rules.text_key, record.text);
  for (const auto& [first, second] : kPairKeys) {
    if (!has_key(object, first) || !has_key(object, second)) continue;
    if (!rules.labelled)
      return fmt::format(
          "'{}' and '{}' are a pair, which only a classifier is trained on; pass "
          "`task` sequence-classification",
          first, second);
    record.second.emplace();
    const std::string wrong = text_under(object, first, record.text);
    return wrong.empty() ? text_under(object, second, *record.second) : wrong;
  }
  return fmt::format(
      "there is no key '{}'; `text_key` names another, and messages, prompt and "
      "completion, or instruction and output are known as well",
      rules.text_key);
}

}  // namespace

const NameTable<DataFormat>& names(DataFormat) {
  static const NameTable<DataFormat> table = {{DataFormat::automatic, "auto"},
                                              {DataFormat::chat, "chat"},
                                              {DataFormat::completion, "completion"},
                                              {DataFormat::instruction, "instruction"},
                                              {DataFormat::text, "text"}};
  return table;
}

const NameTable<LossOn>& names(LossOn) {
  static const NameTable<LossOn> table = {{LossOn::all, "all"}, {LossOn::replies, "replies"}};
  return table;
}

DataFormat format_of_keys(const json& object, const std::string& text_key, bool labelled) {
  if (!object.is_object() || text_key != "text") return DataFormat::text;
  if (labelled && object.contains(text_key)) return DataFormat::text;
  if (has_key(object, "messages")) return DataFormat::chat;
  if (has_key(object, "prompt") && has_key(object, "completion")) return DataFormat::completion;
  if (has_key(object, "instruction") && has_key(object, "output")) return DataFormat::instruction;
  return DataFormat::text;
}

std::string read_record(const json& object, const RecordRules& rules, RecordText& record) {
  switch (rules.format) {
    case DataFormat::chat:
      return read_chat(object, rules, record);
    case DataFormat::completion:
      return read_completion(object, rules, record);
    case DataFormat::instruction:
      return read_instruction(object, rules, record);
    case DataFormat::text:
    case DataFormat::automatic:
      return read_text(object, rules, record);
  }
  return "";
}

}  // namespace veil::data
