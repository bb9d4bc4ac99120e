// Which tokens end and pad texts: the files of a model, in the order that transformers has.
#include "run/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_folder.h"
#include "models/family.h"

namespace veil {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SpecialTokensTest : public data::FolderTest {
 protected:
  SpecialTokensTest() {
    source_.config = *preset_config("llama-tiny");  // 264 rows: bytes, 256 the end, 257 padding
    source_.config->source = nlohmann::ordered_json::object();
    source_.folder = folder_;
  }
  void in_config(const char* field, const nlohmann::ordered_json& value) {
    source_.config->source[field] = value;
  }
  void in_generation_config(const std::string& text) const {
    write("generation_config.json", text);
  }
  SpecialTokens chosen(const std::string& end_token = "", bool own = true) const {
    const auto tokenizer = data::byte_tokenizer();
    return choose_special_tokens(source_, own, tokenizer->identity(), tokenizer.get(), end_token);
  }
  ModelSource source_;
};

TEST_F(SpecialTokensTest, GenerationConfigComesFirstThenConfigThenTheTokenizer) {
  EXPECT_EQ(chosen().end->id, 256);
  EXPECT_EQ(chosen().end->from, "tokenizer");
  in_config("eos_token_id", 10);
  in_config("pad_token_id", 11);
  EXPECT_EQ(special_token_text(*chosen().end), R"(10 "\n" (config.json))");
  EXPECT_EQ(chosen().padding->id, 11);
  in_generation_config(R"({"eos_token_id": 65, "pad_token_id": 66, "bos_token_id": 67})");
  EXPECT_EQ(special_token_text(*chosen().end), "65 A (generation_config.json)");
  EXPECT_EQ(chosen().padding->id, 66);
  EXPECT_EQ(chosen().begin->id, 67);
  // another tokenizer's ids are not in the model's files
  EXPECT_EQ(chosen("", /*own=*/false).end->id, 256);
}

TEST_F(SpecialTokensTest, OfSeveralEndTokensTheTokenizersOwnIsTakenAndAllOfThemEnd) {
  in_generation_config(R"({"eos_token_id": [65, 256]})");
  EXPECT_EQ(chosen().end->id, 256);
  EXPECT_THAT(chosen().ends, ElementsAre(65, 256));
  in_generation_config(R"({"eos_token_id": [65, 66]})");
  EXPECT_EQ(chosen().end->id, 65);
}

TEST_F(SpecialTokensTest, AClassifiersPaddingIsItsConfigs) {
  in_config("pad_token_id", 11);
  in_generation_config(R"({"pad_token_id": 66})");
  source_.config->task = Task::sequence_classification;
  EXPECT_EQ(chosen().padding->id, 11);
}

TEST_F(SpecialTokensTest, WhatIsNoTokenOfTheModelIsPassedOver) {
  in_generation_config(R"({"eos_token_id": 264, "pad_token_id": -1})");
  in_config("eos_token_id", nullptr);
  EXPECT_EQ(chosen().end->id, 256);
  EXPECT_EQ(chosen().padding->id, 257);
  in_generation_config("not json");
  EXPECT_EQ(chosen().end->id, 256);
}

TEST_F(SpecialTokensTest, TheUsersEndTokenOverridesAll) {
  in_generation_config(R"({"eos_token_id": [65, 66]})");
  EXPECT_EQ(chosen("67").end->id, 67);
  EXPECT_EQ(chosen("C").end->id, 67);
  EXPECT_THAT(chosen("C").ends, ElementsAre(67));
  EXPECT_THAT(data::complaint([&] { chosen("-3"); }), HasSubstr("-3"));
  EXPECT_THAT(data::complaint([&] { chosen("CD"); }), HasSubstr("2 tokens"));
  EXPECT_THAT(data::complaint([&] {
                choose_special_tokens(source_, true, data::byte_tokenizer()->identity(), nullptr,
                                      "C");
              }),
              HasSubstr("ids only"));
}

}  // namespace
}  // namespace veil
