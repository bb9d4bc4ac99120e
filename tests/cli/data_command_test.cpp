// veil data, and veil train on conversations, completions and tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/training.h"
#include "data/byte_source.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgramData : public TrainingTest {
 protected:
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((work() / name).parent_path());
    std::ofstream(work() / name) << content;
  }
  static std::string example() { return "'" + source_root() + "/examples/chat'"; }
  // On bytes, which need no tokenizer's file.
  static std::string training(const std::string& more) {
    const bool given = more.find("--seq-length") != std::string::npos;
    return "train --model llama-tiny --from-scratch --device cpu --learning-rate 0.003 "
           "--held-out 0 --chat-template chatml " +
           std::string(given ? "" : "--seq-length 160 ") + more;
  }
  static std::string exported(const fs::path& folder) { return text(folder / "model.safetensors"); }
};

TEST_F(ProgramData, ShowsCountsLengthsAndMarkedSamples) {
  const Answer answer = veil("data " + example() + " --chat-template chatml --seq-length 200");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("16 documents"));
  EXPECT_THAT(answer.out, HasSubstr("format chat by the template chatml, loss on replies"));
  EXPECT_THAT(answer.out, HasSubstr("lengths: "));
  EXPECT_THAT(answer.out, HasSubstr("####"));
  EXPECT_THAT(answer.out, HasSubstr("longer than --seq-length 200: "));
  EXPECT_THAT(answer.out,
              HasSubstr("<|im_start|>user\nHow do I keep basil alive indoors?<|im_end|>"));
  EXPECT_THAT(answer.out, HasSubstr("assistant\n[Give it a sunny window"));
  EXPECT_THAT(answer.out, HasSubstr("not private"));
  EXPECT_EQ(answer.out.find('\033'), std::string::npos);  // no colour without a terminal

  const Answer json = veil("data " + example() + " --chat-template chatml --json");
  ASSERT_EQ(json.code, kExitDone) << json.err;
  const Json record = Json::parse(json.out);
  EXPECT_EQ(record["documents"], 16);
  EXPECT_EQ(record["samples"].size(), 3u);
  EXPECT_THAT(record["note"].get<std::string>(), HasSubstr("not private"));
  EXPECT_LT(record["trained_tokens"].get<int64_t>(), record["tokens"].get<int64_t>());
}

TEST_F(ProgramData, ShowsATokenStoreAsItsFolder) {
  ASSERT_EQ(veil("tokenize " + example() + " --chat-template chatml --output a.tokens").code,
            kExitDone);
  const auto record = [&](const std::string& words) {
    const Answer answer = veil("data " + words + " --json");
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return Json::parse(answer.out);
  };
  const Json stored = record("a.tokens --tokenizer bytes"),
             folder = record(example() + " --chat-template chatml");
  for (const char* key : {"documents", "tokens", "trained_tokens", "longest", "format",
                          "chat_template", "loss_on", "lengths"})
    EXPECT_EQ(stored[key], folder[key]) << key;
  for (size_t sample = 0; sample < 3; ++sample)
    EXPECT_EQ(stored["samples"][sample]["text"], folder["samples"][sample]["text"]);
  EXPECT_EQ(record("a.tokens"), stored) << "its header says that its tokens are bytes";
}

TEST_F(ProgramData, AStoreOfAnotherTokenizerShowsItsTextIfTheTokenizerIsGiven) {
  write("letters/tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "decoder": {"type": "ByteLevel"}})");
  write("a.txt", "abba");
  const Answer made = veil("tokenize a.txt --tokenizer letters --output a.tokens");
  ASSERT_EQ(made.code, kExitDone) << made.err;
  const Answer without = veil("data a.tokens");
  ASSERT_EQ(without.code, kExitDone) << without.err;
  EXPECT_THAT(without.out, HasSubstr("pass --tokenizer PATH, its tokenizer (letters)"));
  EXPECT_THAT(without.out, Not(HasSubstr("abba")));
  const Answer with = veil("data a.tokens --tokenizer letters");
  EXPECT_THAT(with.out, HasSubstr("abba"));
  EXPECT_THAT(with.out, Not(HasSubstr("pass --tokenizer")));
}

TEST_F(ProgramData, TrainsOnConversationsOneSampleEach) {
  const Answer answer = veil(training("--data " + example() + " --batch-size 2 --steps 2"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out + answer.err, HasSubstr("chat by the template chatml, loss on replies ("));
  const Answer privately =
      veil(training("--data " + example() +
                    " --batch-size 2 --total-batch-size 4 --steps 2 --sigma 1 --delta 1e-5 "
                    "--accountant rdp"));
  ASSERT_EQ(privately.code, kExitDone) << privately.err;
  EXPECT_THAT(privately.out + privately.err, HasSubstr("conversation, one sequence of up to 160"));
  const Answer users =
      veil(training("--data " + example() +
                    " --batch-size 2 --total-batch-size 4 --steps 2 --sigma 1 --delta 1e-5 "
                    "--accountant rdp --privacy-unit user --unit-key asker"));
  ASSERT_EQ(users.code, kExitDone) << users.err;
  EXPECT_THAT(users.out + users.err, HasSubstr("user with all their conversations"));
}

// The gradient of what is not trained on is nothing, whatever the text is.
TEST_F(ProgramData, ARecordWithoutATrainedTokenMovesNoParameter) {
  const auto weights = [&](const std::string& name, const std::string& last) {
    write(name + ".jsonl",
          "{\"prompt\": \"one and \", \"completion\": \"two\"}\n"
          "{\"prompt\": \"" +
              last + "\", \"completion\": \"beyond the sequence\"}\n");
    const Answer answer = veil(training("--data " + name +
                                        ".jsonl --seq-length 24 --batch-size 2 --steps 3 "
                                        "--export " +
                                        name + " --output-dir runs_" + name));
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out + answer.err, HasSubstr("1 of 2 samples have no token to train on"));
    return exported(work() / name);
  };
  const std::string a = weights("a", std::string(40, 'x')), b = weights("b", std::string(50, 'y'));
  EXPECT_FALSE(a.empty());
  EXPECT_TRUE(a == b);
}

TEST_F(ProgramData, PromptsAreNotTrainedOnUnlessAskedFor) {
  const auto weights = [&](const std::string& name, const std::string& more) {
    write("p.jsonl",
          "{\"prompt\": \"one and \", \"completion\": \"two\"}\n"
          "{\"prompt\": \"two and \", \"completion\": \"three\"}\n");
    const Answer answer =
        veil(training("--data p.jsonl --seq-length 24 --batch-size 2 --steps 2 "
                      "--export " +
                      name + " --output-dir runs_" + name + more));
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return exported(work() / name);
  };
  const std::string replies = weights("replies", ""),
                    same = weights("same", " --loss-on replies --format completion"),
                    all = weights("all", " --loss-on all --samples document");
  EXPECT_TRUE(replies == same);
  EXPECT_FALSE(replies == all);
}

TEST_F(ProgramData, ClassifiesPairsOfSentences) {
  write("pairs.csv",
        "premise,hypothesis,label\nIt rains.,It is wet.,1\nIt rains.,It is dry.,0\n"
        "\"Snow, again\",It is cold.,1\nSun.,It is cold.,0\n");
  const Answer answer = veil(
      "train --model llama-tiny --from-scratch --task sequence-classification --labels 2 --data "
      "pairs.csv --seq-length 32 --held-out 0 --device cpu --batch-size 2 --steps 2");
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
}

TEST_F(ProgramData, MistakesAreOneLineAndLeaveNothing) {
  write("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  write("twice.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"user\", \"content\": \"b\"}]}\n");
  write("tool.jsonl", "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}\n");
  write("mixed.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"text\": \"b\"}\n");
  write("long.jsonl", "{\"prompt\": \"" + std::string(40, 'x') + "\", \"completion\": \"b\"}\n");
  write("pair.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\"}\n");
  write("row.csv", "text,more\na\n");
  write("plain/a.txt", "some words of text");
  write("broken.jsonl.gz", "this is not packed");
  write("other/tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
  const std::string train =
      "train --model llama-tiny --from-scratch --seq-length 16 --device cpu --steps 1 --batch-size "
      "1 --held-out 0 ";
  struct Row {
    std::string line, says;
  };
  std::vector<Row> rows = {
      {train + "--data chat.jsonl", "the model has no chat template; pass --chat-template with"},
      {train + "--data chat.jsonl --chat-template vicuna", "allowed are chatml, llama3, mistral"},
      {train + "--data chat.jsonl --chat-template none", "need a template"},
      {train + "--data chat.jsonl --chat-template chatml",
       "--loss-on replies: none of 1 record has a reply to train on"},
      {train + "--data long.jsonl", "--seq-length 16: no sample has a token to train on within it"},
      {train + "--data chat.jsonl --chat-template chatml --samples packed",
       "--samples packed: a loss on replies needs one conversation per sample"},
      {train + "--data twice.jsonl --chat-template gemma",
       "twice.jsonl:1: message 2 is of the role"},
      {train + "--data tool.jsonl --chat-template chatml", "tool.jsonl:1: message 1 has the role"},
      {train + "--data mixed.jsonl --chat-template chatml", "mixed.jsonl:2: there is no key"},
      {train + "--data plain --loss-on replies", "--loss-on replies: plain text has no replies"},
      {train + "--data plain --format chat", "a .txt file is plain text"},
      {train + "--data plain --format chats", "--format"},
      {train + "--data pair.jsonl", "are a pair, which only a classifier is trained on"},
      {train + "--data row.csv", "row.csv:2: the row has 1 fields, and the first row names 2"},
      {"data nowhere", "nowhere: no such folder or file"},
      {"data chat.jsonl", "pass --chat-template"},
      {"data chat.jsonl --model llama3.1-8b", "it has no tokenizer.json"},
  };
  if (data::built_with_zlib())
    rows.push_back({train + "--data broken.jsonl.gz", "is no whole gzip file"});
  for (const Row& row : rows) expect_refused(row.line, row.says);
}

}  // namespace
}  // namespace veil
