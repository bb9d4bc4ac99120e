#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/family.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Json llama() {
  return Json::parse(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 32, "intermediate_size": 56,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})");
}

std::string refusal(const Json& json) {
  try {
    parse_config(json, "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, BothSpellingsOfRopeAreRead) {
  Json older = llama(), newer = llama();
  older["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 32}};
  newer.erase("rope_theta");
  newer["rope_parameters"] = older["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  const RopeFrequencies a = rope_frequencies(parse_config(older, "a")),
                        b = rope_frequencies(parse_config(newer, "b"));
  ASSERT_EQ(a.count, 4);
  for (int j = 0; j < a.count; ++j) EXPECT_EQ(a.value[j], b.value[j]);
  EXPECT_EQ(a.value[0], 1.0);                                   // a short wave is left alone
  EXPECT_DOUBLE_EQ(a.value[3], std::pow(500000.0, -0.75) / 8);  // a long one is stretched
}

TEST(Config, AHeadsWidthIsDerivedUnlessItIsGiven) {
  Json json = llama();
  EXPECT_EQ(parse_config(json, "c").head_dim, 8);
  json["head_dim"] = 16;
  EXPECT_EQ(parse_config(json, "c").head_dim, 16);
}

TEST(Config, WhatIsMissingOrAbsurdIsNamedInOneLine) {
  struct Case {
    std::string field;
    Json value;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"hidden_size", nullptr, "hidden_size is missing"},
      {"hidden_size", 0, "hidden_size is 0"},
      {"hidden_size", -4, "hidden_size is -4"},
      {"hidden_size", 1e30, "hidden_size is"},
      {"hidden_size", "32", "a whole number"},
      {"hidden_size", 33, "not a multiple"},
      {"num_hidden_layers", 1000000000, "num_hidden_layers is 1000000000"},
      {"num_attention_heads", 0, "num_attention_heads is 0"},
      {"num_key_value_heads", 3, "not a multiple"},
      {"vocab_size", 0, "vocab_size is 0"},
      {"rms_norm_eps", -1, "rms_norm_eps is -1"},
      {"rope_theta", "big", "a number"},
      {"rope_scaling", 7, "rope_scaling is not an object"},
      {"rope_scaling", {{"rope_type", "yarn"}}, "rope type 'yarn' is not supported"},
      {"model_type", "mamba", "model_type 'mamba' is not supported"},
      {"model_type", nullptr, "model_type '' is not supported"},
      {"hidden_act", "relu", "hidden_act 'relu' is not supported"},
      {"mlp_bias", true, "mlp_bias is not supported"},
      {"tie_word_embeddings", "yes", "true or false"},
      {"pad_token_id", 97, "pad_token_id is 97"},
      {"head_dim", 7, "head_dim 7 must be even"},
      {"id2label", Json::object(), "id2label"},
  };
  for (const Case& c : cases) {
    Json json = llama();
    json[c.field] = c.value;
    const std::string said = refusal(json);
    EXPECT_THAT(said, HasSubstr(c.says)) << c.field << " = " << c.value.dump();
    EXPECT_THAT(said, HasSubstr("config.json"));
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  EXPECT_THAT(refusal(Json::array()), HasSubstr("not a JSON object"));
}

TEST(Config, WhatIsWrittenIsReadBack) {
  for (const std::string& name : preset_names()) {
    for (const Task task : {Task::causal_lm, Task::sequence_classification}) {
      LanguageConfig config = preset_config(name).value();
      config.task = task;
      config.labels = 5;
      const LanguageConfig again = parse_config(config_json(config), name);
      EXPECT_EQ(again.task, task) << name;
      EXPECT_EQ(again.hidden, config.hidden) << name;
      EXPECT_EQ(again.kv_heads, config.kv_heads) << name;
      EXPECT_EQ(again.feed, config.feed) << name;
      EXPECT_EQ(again.tied, config.tied) << name;
      EXPECT_EQ(again.qkv_bias, config.qkv_bias) << name;
      EXPECT_EQ(again.norm_epsilon, config.norm_epsilon) << name;
      EXPECT_EQ(again.labels, task == Task::sequence_classification ? 5 : 3) << name;
      const RopeFrequencies a = rope_frequencies(config), b = rope_frequencies(again);
      ASSERT_EQ(a.count, b.count) << name;
      for (int j = 0; j < a.count; ++j) EXPECT_EQ(a.value[j], b.value[j]) << name;
    }
  }
}

// Parameters of the published models, as their cards or files count them; a tied table counts once.
TEST(Config, PresetsHaveThePublishedNumbersOfParameters) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"llama3.1-8b", 8030261248},  {"llama3.2-1b", 1235814400}, {"llama3.2-3b", 3212749824},
      {"qwen1.5-1.8b", 1836828672}, {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-7b", 7615616512},   {"gpt2", 124439808},         {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080},    {"gpt2-xl", 1557611200}};
  for (const auto& [name, count] : published) {
    const Model model = language_model(preset_config(name).value(), {.tokens = 8});
    EXPECT_EQ(model.shape(1, at::kBFloat16, false).param_count(), count) << name;
  }
}

TEST(Config, ASequenceBeyondTheModelsPositionsIsRefused) {
  EXPECT_THROW(language_model(preset_config("gpt2").value(), {.tokens = 1025}), UserError);
  EXPECT_NO_THROW(language_model(preset_config("gpt2").value(), {.tokens = 1024}));
}

}  // namespace
}  // namespace veil
