#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/files.h"
#include "cli/command.h"
#include "data/test_folder.h"
#include "data/test_goldens.h"
#include "data/token_store.h"

namespace veil {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CommandTokenize : public data::FolderTest {
 protected:
  struct Answer {
    int code;
    std::string out, err;
  };
  Answer tokenize(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "tokenize");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = run_veil(arguments);
    std::fflush(stdout);
    return {code, ::testing::internal::GetCapturedStdout(),
            ::testing::internal::GetCapturedStderr()};
  }
  // The one line of an answer that must be wrong usage and leave nothing behind.
  std::string refused(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--output", path("refused.tokens")});
    const Answer answer = tokenize(arguments);
    EXPECT_EQ(answer.code, kExitUsage) << answer.err;
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
    EXPECT_THAT(answer.err, StartsWith("veil: "));
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename().string().find("refused"), std::string::npos)
          << entry.path();
    }
    return answer.err;
  }
};

TEST_F(CommandTokenize, AFolderBecomesAStoreAndALineSaysHowMuch) {
  write("data/a.txt", "hello");
  write("data/b.jsonl", "{\"text\": \"w\u00f6rld\", \"label\": 1}\n");
  const Answer answer = tokenize({path("data"), "--output", path("out/a.tokens")});
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_EQ(answer.err, "");
  EXPECT_THAT(answer.out, HasSubstr("2 documents, 11 tokens, 11 B of text"));
  const auto store = data::TokenStore::open(path("out/a.tokens"));
  EXPECT_EQ(store.header().documents, 2);
  EXPECT_EQ(store.header().tokenizer.name, "byte");
  EXPECT_FALSE(store.header().labelled);
}

TEST_F(CommandTokenize, JsonToStdoutIsAllThatStandsThere) {
  write("data/b.jsonl", "{\"body\": \"x\", \"label\": \"no\"}\n{\"body\": \"yy\", \"label\": 4}\n");
  const Answer answer = tokenize({path("data"), "--output", path("a.tokens"), "--text-key", "body",
                                  "--label-key", "label", "--labels", "yes,no", "--json"});
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const auto record = nlohmann::json::parse(answer.out);
  EXPECT_EQ(record["documents"].get<int>(), 2);
  EXPECT_EQ(record["tokens"].get<int>(), 3);
  EXPECT_EQ(record["store_bytes"].get<size_t>(), read_file(path("a.tokens")).size());
  const auto store = data::TokenStore::open(path("a.tokens"));
  EXPECT_EQ(store.label(0), 1);
  EXPECT_EQ(store.label(1), 4);
}

TEST_F(CommandTokenize, BadLinesStopTheRunUnlessTheyAreSkippedAndCounted) {
  write("data/a.jsonl", "{\"text\": \"x\"}\n{\"text\": \n{\"text\": \"y\"}\n[]\n");
  EXPECT_THAT(refused({path("data")}),
              AllOf(HasSubstr("a.jsonl:2: this is not JSON"), HasSubstr("--skip-bad")));
  const Answer answer = tokenize({path("data"), "--skip-bad", "--output", path("a.tokens")});
  EXPECT_EQ(answer.code, kExitDone);
  EXPECT_THAT(answer.err, AllOf(HasSubstr("left out: " + path("data/a.jsonl") + ":2: "),
                                HasSubstr("a.jsonl:4: ")));
  EXPECT_THAT(answer.out, AllOf(HasSubstr("2 documents"), HasSubstr("2 bad lines left out")));
}

TEST_F(CommandTokenize, WrongInputIsOneLineAndLeavesNothing) {
  std::filesystem::create_directories(path("empty"));
  EXPECT_THAT(refused({path("empty")}),
              HasSubstr("holds no .txt, .json, .jsonl, .csv or .tsv file"));
  EXPECT_THAT(refused({path("nowhere")}), HasSubstr("no such folder or file"));
  write("blank/a.txt", "");
  EXPECT_THAT(refused({path("blank")}), HasSubstr("holds no document with text"));
  write("data/a.txt", "hello");
  EXPECT_THAT(refused({path("data"), "--tokenizer", path("data")}),
              HasSubstr("holds no tokenizer.json"));
  EXPECT_THAT(refused({path("data"), "--tokenizer", path("none.json")}),
              HasSubstr("no such file or folder"));
  EXPECT_THAT(refused({path("data"), "--label-key", "label"}),
              HasSubstr("a.txt:1: a .txt file has no label"));
  const std::string pieces =
      write("wordpiece.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}");
  EXPECT_THAT(refused({path("data"), "--tokenizer", pieces}),
              AllOf(HasSubstr("WordPiece"), HasSubstr("allowed is BPE")));
  const std::string unigram =
      write("unigram.json", "{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0.5]]}}");
  EXPECT_THAT(refused({path("data"), "--tokenizer", unigram}), HasSubstr("Unigram"));
  EXPECT_EQ(tokenize({}).code, kExitUsage);
  EXPECT_EQ(tokenize({path("data"), "--output", path("data")}).code, kExitUsage);
}

TEST_F(CommandTokenize, EveryTokenizerOfTheGoldensWritesAStoreThatReadsBack) {
  if (!build_info().unicode) GTEST_SKIP() << "this build has no PCRE2 and utf8proc (VEIL_UNICODE)";
  const std::string text = "A document with caf\u00e9, \u4e2d\u6587 and 12345 numbers.\n";
  write("data/a.txt", text);
  for (const auto& entry : std::filesystem::directory_iterator(data::tokenizer_goldens())) {
    if (entry.path().extension() != ".json") continue;
    const Answer answer = tokenize(
        {path("data"), "--tokenizer", entry.path().string(), "--output", path("a.tokens")});
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    const auto store = data::TokenStore::open(path("a.tokens"));
    const auto tokenizer = data::load_tokenizer(entry.path().string());
    store.require_tokenizer(tokenizer->identity());
    std::vector<int64_t> tokens(static_cast<size_t>(store.size(0)));
    store.copy(0, 0, store.size(0), tokens.data());
    const std::vector<int32_t> expected = tokenizer->encode(text, true);
    EXPECT_EQ(tokens, std::vector<int64_t>(expected.begin(), expected.end()));
    EXPECT_THAT(tokenizer->decode(expected), HasSubstr(text));
  }
}

}  // namespace
}  // namespace veil
