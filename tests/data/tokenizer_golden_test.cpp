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

  const Tokenizer& tokenizer(const std::string& name) {
    auto& found = loaded_[name];
    if (!found) found = load_tokenizer((tokenizer_goldens() / (name + ".json")).string());
    return *found;
  }

  std::map<std::string, std::unique_ptr<Tokenizer>> loaded_;
};

TEST_F(TokenizerGolden, EveryTextEncodesAndDecodesAsTheReferenceDoes) {
  std::set<std::string> seen;
  for (const auto& row : json_lines(tokenizer_goldens() / "cases.jsonl")) {
    const auto name = row["tokenizer"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    seen.insert(name);
    const auto found = tokenizer(name).encode(row["text"].get<std::string>(),
                                              row["add_special_tokens"].get<bool>());
    EXPECT_EQ(found, ids) << row;
    EXPECT_EQ(tokenizer(name).decode(ids), row["decoded"].get<std::string>()) << row;
  }
  // Every tokenizer file that lies there has cases.
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_goldens())) {
    if (entry.path().extension() == ".json") {
      EXPECT_TRUE(seen.contains(entry.path().stem().string())) << entry.path();
    }
  }
}

TEST_F(TokenizerGolden, TokensCutInsideACharacterDecodeAsTheReferenceDoes) {
  for (const auto& row : json_lines(tokenizer_goldens() / "decode_cases.jsonl")) {
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer(row["tokenizer"].get<std::string>()).decode(ids),
              row["decoded"].get<std::string>())
        << row;
  }
}

}  // namespace
}  // namespace veil::data
