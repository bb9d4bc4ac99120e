#include "data/record_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/test_folder.h"

namespace veil::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

RecordRules rules_of(DataFormat format) {
  return {.format = format,
          .text_key = "text",
          .labelled = false,
          .chat = {named_chat_template(ChatFormat::chatml, {}), "", false}};
}

// What lies within the replies.
std::string trained(const RecordText& record) {
  std::string all;
  for (const Span& span : record.replies) {
    all += '[';
    all.append(record.text, span.begin, span.end - span.begin);
    all += ']';
  }
  return all;
}

TEST(RecordText, TheKeysTellTheFormat) {
  const auto format = [](const char* text, bool labelled = false) {
    return format_of_keys(json::parse(text), "text", labelled);
  };
  EXPECT_EQ(format(R"({"messages": [], "text": "a"})"), DataFormat::chat);
  EXPECT_EQ(format(R"({"messages": [], "text": "a"})", true), DataFormat::text);
  EXPECT_EQ(format(R"({"prompt": "a", "completion": "b"})"), DataFormat::completion);
  EXPECT_EQ(format(R"({"prompt": "a", "text": "b"})"), DataFormat::text);
  EXPECT_EQ(format(R"({"instruction": "a", "output": "b"})"), DataFormat::instruction);
  EXPECT_EQ(format(R"({"text": "a"})"), DataFormat::text);
  EXPECT_EQ(format(R"({"messages": null, "text": "a"})"), DataFormat::text);
  EXPECT_EQ(format_of_keys(json::parse(R"({"messages": [], "body": ""})"), "body", false),
            DataFormat::text);
}

TEST(RecordText, EachFormatIsRenderedWithItsReplies) {
  RecordText chat, completion, instruction, plain, turns;
  EXPECT_EQ(read_record(json::parse(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}]})"),
                        rules_of(DataFormat::chat), chat),
            "");
  EXPECT_EQ(chat.text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n");
  EXPECT_EQ(trained(chat), "[Yes<|im_end|>]");
  EXPECT_TRUE(chat.whole);

  EXPECT_EQ(read_record(json::parse(R"({"prompt": "2 + 2 =", "completion": " 4"})"),
                        rules_of(DataFormat::completion), completion),
            "");
  EXPECT_EQ(completion.text, "2 + 2 = 4");
  EXPECT_EQ(trained(completion), "[ 4]");
  EXPECT_FALSE(completion.whole);

  const json task = {{"instruction", "Add"}, {"input", "2, 2"}, {"output", "4"}};
  EXPECT_EQ(read_record(task, rules_of(DataFormat::instruction), instruction), "");
  EXPECT_EQ(instruction.text,
            "<|im_start|>user\nAdd\n\n2, 2<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n");
  EXPECT_EQ(trained(instruction), "[4<|im_end|>]");
  RecordRules alone = rules_of(DataFormat::instruction);
  alone.chat = {{}, "the model has no chat template", true};
  EXPECT_EQ(read_record(task, alone, plain), "");
  EXPECT_THAT(plain.text,
              HasSubstr("### Instruction:\nAdd\n\n### Input:\n2, 2\n\n### Response:\n4"));
  EXPECT_EQ(trained(plain), "[4]");

  // A prompt may be messages, whose replies are not trained on.
  EXPECT_EQ(read_record(json::parse(R"({"prompt": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}]})"),
                        rules_of(DataFormat::completion), turns),
            "");
  EXPECT_EQ(trained(turns), "[d<|im_end|>]");
}

TEST(RecordText, PairsAreForClassifiers) {
  RecordRules rules = rules_of(DataFormat::text);
  RecordText record;
  const json pair = {{"premise", "It rains."}, {"hypothesis", "It is wet."}};
  EXPECT_THAT(read_record(pair, rules, record), HasSubstr("'premise' and 'hypothesis' are a pair"));
  rules.labelled = true;
  EXPECT_EQ(read_record(pair, rules, record), "");
  EXPECT_EQ(record.text, "It rains.");
  EXPECT_EQ(record.second, "It is wet.");
}

TEST(RecordText, WhatIsWrongIsNamed) {
  const auto wrong = [](const char* text, DataFormat format) {
    RecordText record;
    return read_record(json::parse(text), rules_of(format), record);
  };
  const DataFormat chat = DataFormat::chat;
  EXPECT_THAT(wrong(R"({"text": "a"})", chat), HasSubstr("no key 'messages'"));
  EXPECT_THAT(wrong(R"({"messages": 3})", chat), HasSubstr("no list"));
  EXPECT_THAT(wrong(R"({"messages": []})", chat), HasSubstr("no message"));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user"}]})", chat),
              HasSubstr("message 1 has no content"));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user", "content": null}]})", chat),
              HasSubstr("message 1: its content is no text"));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "tool", "content": "a"}]})", chat),
              HasSubstr("role 'tool'; allowed are system, user, assistant"));
  EXPECT_THAT(
      wrong(R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]})", chat),
      HasSubstr("tool_calls"));
  EXPECT_THAT(wrong(R"({"prompt": "a"})", DataFormat::completion), HasSubstr("'completion'"));
  EXPECT_THAT(wrong(R"({"prompt": 1, "completion": "a"})", DataFormat::completion),
              HasSubstr("'prompt' is no text"));
  EXPECT_THAT(wrong(R"({"output": "a"})", DataFormat::instruction), HasSubstr("'instruction'"));
  RecordRules none = rules_of(chat);
  none.chat = {{}, "the model's chat template is not one that Veil knows", false};
  RecordText record;
  const json hello = json::parse(R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_THAT(complaint([&] { read_record(hello, none, record); }), HasSubstr("not one that Veil"));
  none.chat = {};
  EXPECT_THAT(complaint([&] { read_record(hello, none, record); }), HasSubstr("need a template"));
}

}  // namespace
}  // namespace veil::data
