#include "data/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "data/test_folder.h"
#include "data/test_goldens.h"
#include "golden_folder.h"

namespace veil::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& each : list) messages.push_back({each["role"], each["content"]});
  return messages;
}

// The same, and which format it is.
void expect_case(const ChatTemplate& chat, const json& row) {
  const RenderedChat found =
      render_chat(chat, messages_of(row["messages"]), row["add_generation_prompt"].get<bool>());
  if (row["error"].get<bool>()) {
    EXPECT_NE(found.refusal, "") << row;
    return;
  }
  EXPECT_EQ(found.refusal, "") << row;
  EXPECT_EQ(found.text, row["text"].get<std::string>()) << row;
  const auto expected = row["assistant_bytes"].get<std::vector<std::pair<size_t, size_t>>>();
  ASSERT_EQ(found.replies.size(), expected.size()) << row;
  for (size_t reply = 0; reply < expected.size(); ++reply)
    EXPECT_EQ(found.replies[reply], (Span{expected[reply].first, expected[reply].second})) << row;
}

TEST(ChatGolden, EveryConversationIsRenderedAsTheModelsOwnTemplateDoes) {
  const auto folder = goldens_with("chat/cases.jsonl") / "chat";
  std::set<std::string> seen;
  for (const auto& row : json_lines(folder / "cases.jsonl")) {
    const auto format = row["format"].get<std::string>();
    seen.insert(format);
    const RecognisedChat own = find_chat_template((folder / format).string(), "");
    ASSERT_TRUE(own.chat) << format << ": " << own.refusal;
    expect_case(*own.chat, row);
  }
  // Every folder with a template has cases.
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    EXPECT_TRUE(seen.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(ChatGolden, AFormatCanBeNamedInsteadOfRecognised) {
  const auto folder = goldens_with("chat/cases.jsonl") / "chat";
  for (const auto& row : json_lines(folder / "cases.jsonl")) {
    const auto format = row["format"].get<std::string>();
    const RecognisedChat own = find_chat_template((folder / format).string(), ""),
                         named = find_chat_template((folder / format).string(),
                                                    name_of(own.chat.value().format));
    ASSERT_TRUE(named.chat) << format;
    expect_case(*named.chat, row);
  }
}

// Templates of other hands that mean one of the formats.
struct OtherHand {
  ChatFormat format;
  const char* jinja;
};
const std::vector<OtherHand>& other_hands() {
  static const std::vector<OtherHand> all = {
      // text outside of tags, attributes, white space control
      {ChatFormat::chatml,
       "{%- for message in messages %}\n"
       "  {{- '<|im_start|>' ~ message.role ~ \"\\n\" -}}\n"
       "  {{- message.content -}}\n"
       "  {{- '<|im_end|>' + \"\\n\" -}}\n"
       "{%- endfor %}\n"
       "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"},
      {ChatFormat::chatml,
       "{# a comment with words #}{% for message in messages %}\n"
       "<|im_start|>{{ message['role'] }}\n"
       "{{ message['content'] }}<|im_end|>\n"
       "{% endfor %}\n"
       "{% if add_generation_prompt %}\n"
       "<|im_start|>assistant\n"
       "{% endif %}"},
      {ChatFormat::chatml,
       "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n'}}{% if m['role'] == "
       "'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else "
       "%}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}{% if "
       "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
      // marks as variables
      {ChatFormat::chatml,
       "{% set begin = '<|im_start|>' %}{% set end = '<|im_end|>' %}{% for m in messages %}{{ "
       "begin + m.role + '\\n' + m.content + end + '\\n' }}{% endfor %}{% if "
       "add_generation_prompt %}{{ begin ~ 'assistant' ~ '\\n' }}{% endif %}"},
      // as Llama 3 was published
      {ChatFormat::llama3,
       "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
       "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
       "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% "
       "endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
       "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"},
      // as Mistral's
      {ChatFormat::mistral,
       "{%- if messages[0][\"role\"] == \"system\" %}\n"
       "    {%- set system_message = messages[0][\"content\"] %}\n"
       "    {%- set loop_messages = messages[1:] %}\n"
       "{%- else %}\n"
       "    {%- set loop_messages = messages %}\n"
       "{%- endif %}\n"
       "{{- bos_token }}\n"
       "{%- for message in loop_messages %}\n"
       "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
       "        {{- raise_exception('After the optional system message, roles must alternate') }}\n"
       "    {%- endif %}\n"
       "    {%- if message[\"role\"] == \"user\" %}\n"
       "        {%- if loop.first and system_message is defined %}\n"
       "            {{- \" [INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + \" "
       "[/INST]\" }}\n"
       "        {%- else %}\n"
       "            {{- \" [INST] \" + message[\"content\"] + \" [/INST]\" }}\n"
       "        {%- endif %}\n"
       "    {%- elif message[\"role\"] == \"assistant\" %}\n"
       "        {{- \" \" + message[\"content\"] + eos_token}}\n"
       "    {%- else %}\n"
       "        {{- raise_exception(\"Only user and assistant roles are supported\") }}\n"
       "    {%- endif %}\n"
       "{%- endfor %}\n"},
      {ChatFormat::gemma,
       "{{ '<bos>' }}{% set ns = namespace(prefix='') %}{% if messages[0].role == 'system' %}{% "
       "set ns.prefix = messages[0].content + '\\n\\n' %}{% set messages = messages[1:] %}{% endif "
       "%}{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) "
       "%}{{ raise_exception('no') }}{% endif %}{% set role = 'model' if message.role == "
       "'assistant' else message.role %}{{ '<start_of_turn>' + role + '\\n' }}{% if loop.first "
       "%}{{ ns.prefix }}{% endif %}{{ message.content.strip() }}{{ '<end_of_turn>\\n' }}{% endfor "
       "%}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
      // as Gemma 3 was published
      {ChatFormat::gemma, R"jinja({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
)jinja"},
      // as Phi-3.5's
      {ChatFormat::phi3,
       "{% for message in messages %}{% if message['role'] == 'system' and message['content'] "
       "%}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' "
       "%}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == "
       "'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor "
       "%}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif "
       "%}"},
      {ChatFormat::phi3,
       "{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + "
       "'<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else "
       "%}{{ eos_token }}{% endif %}"}};
  return all;
}

TEST(Chat, TemplatesOfOtherHandsAreRecognised) {
  const auto cases = json_lines(goldens_with("chat/cases.jsonl") / "chat/cases.jsonl");
  for (const OtherHand& other : other_hands()) {
    const ChatTemplate named = named_chat_template(other.format, {});
    const RecognisedChat found = recognise_chat_template(other.jinja, {named.begin, named.end});
    ASSERT_TRUE(found.chat) << found.refusal << "\n" << other.jinja;
    EXPECT_EQ(found.chat->format, other.format) << other.jinja;
    for (const auto& row : cases) {
      if (row["format"] == name_of(other.format)) expect_case(*found.chat, row);
    }
  }
}

TEST(Chat, ADefaultSystemMessageOfChatmlIsKept) {
  // as SmolLM2 was published
  const std::string jinja =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
      "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
      "'<|im_start|>assistant\n' }}{% endif %}";
  const RecognisedChat found = recognise_chat_template(jinja, {});
  ASSERT_TRUE(found.chat) << found.refusal;
  EXPECT_EQ(render_chat(*found.chat, {{"user", "Hi"}, {"assistant", "Yes"}}, false).text,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>"
            "\n");
  EXPECT_EQ(render_chat(*found.chat, {{"system", "Be brief."}, {"user", "Hi"}}, false).text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST(Chat, BranchesForToolsAreLeftOut) {
  // as Qwen2.5 was published, with fewer words
  const RecognisedChat found = recognise_chat_template(R"jinja({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or
        (message.role == "system" and not loop.first) or
        (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n{"name": "' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {{- '\n<tool_response>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)jinja",
                                                       {"", "<|im_end|>"});
  ASSERT_TRUE(found.chat) << found.refusal;
  EXPECT_EQ(found.chat->format, ChatFormat::chatml);
  EXPECT_EQ(found.chat->default_system, "You are Qwen.");
  EXPECT_EQ(found.chat->begin, "");
}

TEST(Chat, ATemplateThatMeansSomethingElseIsRefusedWithTheList) {
  const auto refusal = [](std::string jinja, const char* from, const char* to) {
    const size_t at = jinja.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const RecognisedChat found =
        recognise_chat_template(jinja.replace(at, std::string(from).size(), to), {});
    EXPECT_FALSE(found.chat) << jinja;
    EXPECT_EQ(found.refusal.find('\n'), std::string::npos) << found.refusal;
    EXPECT_THAT(found.refusal, HasSubstr("`chat_template`"));
    EXPECT_THAT(found.refusal, HasSubstr("chatml, llama3, mistral, gemma, phi3"));
    return found.refusal;
  };
  const std::string chatml = other_hands()[0].jinja, llama = other_hands()[4].jinja,
                    mistral = other_hands()[5].jinja, phi = other_hands()[8].jinja;
  EXPECT_THAT(refusal(chatml, "message.content", "'<think>' + message.content"),
              HasSubstr("also writes '<think>'"));
  EXPECT_THAT(refusal(chatml, "message.content", "'### ' + message.content"),
              HasSubstr("also writes '###'"));
  EXPECT_THAT(refusal(chatml, "message.content", "message.content | trim"),
              HasSubstr("removes white space"));
  EXPECT_THAT(refusal(llama, "| trim", ""), HasSubstr("keeps white space"));
  EXPECT_THAT(refusal(llama, "{% for", "{{ 'Today is Monday' }}{% for"), HasSubstr("Today"));
  EXPECT_THAT(refusal(mistral, "\" [INST] \" + message", "\"[INST]\" + '<<SYS>>' + message"),
              HasSubstr("SYS"));
  EXPECT_THAT(refusal(phi, "'<|assistant|>\n' + message", "'<|assistant|>' + '[INST] [/INST]'"),
              HasSubstr("two formats"));
  EXPECT_THAT(refusal("{{ messages[0].content }}", "content", "role"), HasSubstr("marks of none"));
}

using ChatFolder = FolderTest;

TEST_F(ChatFolder, TheTemplateIsFoundWithTheTokenizer) {
  const std::string chatml = other_hands()[0].jinja, phi = other_hands()[8].jinja;
  write("tokenizer_config.json", json{{"chat_template", chatml}, {"bos_token", nullptr}}.dump());
  EXPECT_EQ(find_chat_template(folder_, "").chat.value().format, ChatFormat::chatml);
  EXPECT_EQ(find_chat_template(path("tokenizer.json"), "").chat.value().format, ChatFormat::chatml);
  write("tokenizer_config.json", json{{"chat_template",
                                       {{{"name", "tool_use"}, {"template", chatml}},
                                        {{"name", "default"}, {"template", phi}}}}}
                                     .dump());
  EXPECT_EQ(find_chat_template(folder_, "").chat.value().format, ChatFormat::phi3);
  write("chat_template.jinja", chatml);
  EXPECT_EQ(find_chat_template(folder_, "").chat.value().format, ChatFormat::chatml);
  EXPECT_EQ(find_chat_template(folder_, "gemma").chat.value().format, ChatFormat::gemma);
  EXPECT_FALSE(find_chat_template(folder_, "none").chat);
  EXPECT_THAT(find_chat_template("byte", "").refusal, HasSubstr("no chat template"));
  EXPECT_THROW(find_chat_template("byte", "vicuna"), UserError);
}

TEST(Chat, WhiteSpaceIsStrippedAsPythonDoes) {
  EXPECT_EQ(stripped("\u00a0\u3000\x1c\u0085 a b \u2029\n"), "a b");
  EXPECT_EQ(stripped("\u200b a"), "\u200b a");
  EXPECT_EQ(stripped(" \t "), "");
}

}  // namespace
}  // namespace veil::data
