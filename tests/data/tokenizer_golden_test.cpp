// Every case of every tokenizer among the goldens, both ways.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "base/build_info.h"
#include "data/test_goldens.h"
#include "data/tokenizer.h"

namespace veil::data {
namespace {

class TokenizerGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!build_info().unicode)
      GTEST_SKIP() << "this build has no PCRE2 and utf8proc (VEIL_UNICODE)";
  }

  // Folders of tokenizers: those that hold cases which name one.
  static std::vector<std::filesystem::path> folders() {
    std::vector<std::filesystem::path> found;
    for (const auto& entry :
         std::filesystem::directory_iterator(tokenizer_goldens().parent_path())) {
      const auto cases = entry.path() / "cases.jsonl";
      if (std::filesystem::exists(cases) && json_lines(cases).at(0).contains("tokenizer"))
        found.push_back(entry.path());
    }
    EXPECT_GE(found.size(), 1u);
    return found;
  }

  const Tokenizer& tokenizer(const std::filesystem::path& file) {
    auto& found = loaded_[file.string()];
    if (!found) found = load_tokenizer(file.string());
    return *found;
  }

  std::map<std::string, std::unique_ptr<Tokenizer>> loaded_;
};

TEST_F(TokenizerGolden, EveryTextEncodesAndDecodesAsTheReferenceDoes) {
  for (const auto& folder : folders()) {
    std::set<std::string> seen;
    for (const auto& row : json_lines(folder / "cases.jsonl")) {
      const auto name = row["tokenizer"].get<std::string>();
      const auto text = row["text"].get<std::string>();
      const bool add_special = row["add_special_tokens"].get<bool>();
      const auto ids = row["ids"].get<std::vector<int32_t>>();
      seen.insert(name);
      const Tokenizer& mine = tokenizer(folder / (name + ".json"));
      EXPECT_EQ(mine.encode(text, add_special), ids) << row;
      EXPECT_EQ(mine.decode(ids), row["decoded"].get<std::string>()) << row;
      const EncodedText tracked = mine.encode_with_spans(text, add_special);
      EXPECT_EQ(tracked.tokens, ids) << row;
      ASSERT_EQ(tracked.spans.size(), ids.size()) << row;
      for (const Span& span : tracked.spans) {
        EXPECT_LE(span.begin, span.end) << row;
        EXPECT_LE(span.end, text.size()) << row;
      }
    }
    // Every tokenizer file that is there has cases.
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") {
        EXPECT_TRUE(seen.contains(entry.path().stem().string())) << entry.path();
      }
    }
  }
}

TEST_F(TokenizerGolden, TokensCutInsideACharacterDecodeAsTheReferenceDoes) {
  for (const auto& folder : folders()) {
    for (const auto& row : json_lines(folder / "decode_cases.jsonl")) {
      const auto ids = row["ids"].get<std::vector<int32_t>>();
      const auto file = folder / (row["tokenizer"].get<std::string>() + ".json");
      EXPECT_EQ(tokenizer(file).decode(ids), row["decoded"].get<std::string>()) << row;
    }
  }
}

}  // namespace
}  // namespace veil::data
