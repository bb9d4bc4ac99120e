#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/error.h"
#include "models/dit.h"
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
      {"rope_scaling",
       {{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}},
       "short_factor must be 4 numbers"},
      {"rope_scaling",
       {{"rope_type", "longrope"},
        {"short_factor", {1.0, 1.0, 1.0, 1e-310}},
        {"long_factor", {1.0, 1.0, 1.0, 1.0}}},
       "short_factor must be 4 numbers from 1e-6"},
      {"rope_scaling",
       {{"rope_type", "longrope"},
        {"short_factor", {1.0, 1.0, 1.0, 1.0}},
        {"long_factor", {1.0, 1.0, 1.0, 1.0}},
        {"original_max_position_embeddings", 1}},
       "original_max_position_embeddings 1 needs an attention_factor"},
      {"rope_parameters", {{"full_attention", Json::object()}}, "full_attention is not supported"},
      {"hidden_act", "si\nlu", "is not supported; allowed is silu"},
      {"partial_rotary_factor", 0.1, "partial_rotary_factor 0.1 leaves nothing"},
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

TEST(Config, WhatAFamilyDoesNotHaveIsRefusedByName) {
  struct Case {
    std::string family, field;
    Json value;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"gemma3_text", "attn_logit_softcapping", 50.0, "attn_logit_softcapping is not supported"},
      {"gemma3_text", "final_logit_softcapping", 30.0, "final_logit_softcapping is not supported"},
      {"gemma3_text", "use_bidirectional_attention", true, "use_bidirectional_attention is not"},
      {"gemma3_text", "hidden_activation", "silu", "hidden_activation 'silu' is not supported"},
      {"gemma3_text", "layer_types", {"full_attention"}, "a kind for each of the 2 layers"},
      {"gemma3_text",
       "layer_types",
       {"full_attention", "chunked_attention"},
       "layer type 'chunked_attention' is not supported"},
      {"gemma3_text", "sliding_window", 0, "sliding_window is 0"},
      {"gemma3", "vocab_size", 97, "model_type 'gemma3' is not supported"},
      {"gemma2", "vocab_size", 97, "model_type 'gemma2' is not supported"},
      {"qwen3", "attention_bias", true, "attention_bias is not supported for qwen3"},
      {"smollm3", "use_sliding_window", true, "use_sliding_window is not supported"},
      {"smollm3", "no_rope_layers", {1}, "no_rope_layers must have a number for each"},
      {"mistral", "sliding_window", -1, "sliding_window is -1"},
      {"roberta", "position_embedding_type", "relative_key", "'relative_key' is not supported"},
      {"roberta", "is_decoder", true, "is_decoder is not supported"},
      {"roberta", "hidden_act", "relu", "hidden_act 'relu' is not supported"},
      {"roberta", "max_position_embeddings", 2, "must be above pad_token_id 1 + 1"},
  };
  for (const Case& c : cases) {
    Json json = llama();
    json["model_type"] = c.family;
    json["sliding_window"] = 16;
    json[c.field] = c.value;
    EXPECT_THAT(refusal(json), HasSubstr(c.says)) << c.family << " " << c.field;
  }
  LanguageConfig encoder = *preset_config("roberta-tiny");
  encoder.task = Task::causal_lm;
  EXPECT_THROW(language_model(encoder, {.tokens = 8}), UserError);
}

TEST(Config, WindowsAndRotationsAreReadLayerByLayer) {
  Json json = llama();
  json["num_hidden_layers"] = 4;
  const auto sliding = [&](const char* family) {
    json["model_type"] = family;
    return parse_config(json, "c").sliding;
  };
  using Layers = std::vector<bool>;
  json["sliding_window"] = 16;
  EXPECT_EQ(sliding("mistral"), Layers(4, true));
  EXPECT_EQ(sliding("phi3"), Layers(4, true));
  EXPECT_EQ(sliding("qwen3"), Layers()) << "use_sliding_window is off";
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 3;
  EXPECT_EQ(sliding("qwen3"), (Layers{false, false, false, true}));
  EXPECT_EQ(sliding("qwen2"), (Layers{false, false, false, true}));
  json["sliding_window_pattern"] = 2;
  EXPECT_EQ(sliding("gemma3_text"), (Layers{true, false, true, false}));
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(sliding("gemma3_text"), (Layers{false, true, false, false}));
  // either spelling of Gemma's two bases; scaling is for layers that see everything
  json["rope_local_base_freq"] = 100.0;
  json["head_dim"] = 8;  // Gemma's default is 256
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const LanguageConfig older = parse_config(json, "older");
  for (const char* name : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) json.erase(name);
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 100.0}}}};
  const LanguageConfig newer = parse_config(json, "newer");
  for (const LanguageConfig& config : {older, newer}) {
    EXPECT_DOUBLE_EQ(rope_frequencies(config, 0).value[1], std::pow(500000.0, -0.25) / 8);
    EXPECT_DOUBLE_EQ(rope_frequencies(config, 1).value[1], std::pow(100.0, -0.25));
  }
  // SmolLM3: every fourth layer has no positions, or as the list says (1: it turns)
  Json smol = llama();
  smol["model_type"] = "smollm3";
  smol["num_hidden_layers"] = 4;
  EXPECT_EQ(parse_config(smol, "c").still, (Layers{false, false, false, true}));
  smol["no_rope_layers"] = {0, 1, 1, 1};
  EXPECT_EQ(rope_frequencies(parse_config(smol, "c"), 0).count, 0);
  EXPECT_EQ(rope_frequencies(parse_config(smol, "c"), 3).count, 4);
}

TEST(Config, LongRopeChangesItsFactorsBeyondTheOriginalPositions) {
  Json json = llama();
  json["model_type"] = "phi3";
  json["partial_rotary_factor"] = 0.5;
  json["original_max_position_embeddings"] = 64;
  json["rope_scaling"] = {
      {"type", "longrope"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {4.0, 8.0}}};
  const LanguageConfig config = parse_config(json, "c");
  const RopeFrequencies near = rope_frequencies(config, 0, 64),
                        far = rope_frequencies(config, 0, 65);
  ASSERT_EQ(near.count, 2);  // half of a head of 8 turns
  EXPECT_DOUBLE_EQ(near.value[1], std::pow(500000.0, -0.5) / 2);
  EXPECT_DOUBLE_EQ(far.value[1], std::pow(500000.0, -0.5) / 8);
  // 256 positions are four times the original 64
  EXPECT_DOUBLE_EQ(near.scale, std::sqrt(1 + std::log(4.0) / std::log(64.0)));
  EXPECT_EQ(near.scale, far.scale);
}

TEST(Config, GemmasHeadsTurnWhateverTheFormOfItsRope) {
  Json json = llama();
  json["model_type"] = "gemma3_text";
  json["sliding_window"] = 16;
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e6}}},
                             {"sliding_attention", {{"rope_theta", 1e4}}}};
  EXPECT_EQ(rope_frequencies(parse_config(json, "c")).count, 128);
  json["partial_rotary_factor"] = 0;
  EXPECT_THAT(refusal(json), HasSubstr("partial_rotary_factor 0 leaves nothing"));
}

TEST(Config, RobertasUsualPaddingMustBeInTheVocabulary) {
  Json json = llama();
  json["model_type"] = "roberta";
  EXPECT_EQ(parse_config(json, "c").padding_id, 1);
  json["vocab_size"] = 1;
  EXPECT_THAT(refusal(json), HasSubstr("pad_token_id 1 (its default) must be below vocab_size 1"));
}

// A search through all members for each one would take time that grows with the square.
TEST(Config, AnyNumberOfLabelsIsWrittenInTimeThatGrowsWithIt) {
  LanguageConfig config = preset_config("roberta-tiny").value();
  config.labels = 200000;
  const Json json = config_json(config);
  EXPECT_EQ(json["id2label"].size(), 200000u);
  EXPECT_EQ(json["label2id"].back(), 199999);
}

TEST(Config, ANoiseScheduleWithoutNoiseOrWithoutAnImageIsRefused) {
  const std::vector<std::tuple<double, double, int64_t>> schedules = {
      {1e-300, 0.02, 1000}, {1e-4, 0.02, 1 << 20}, {0.9, 0.9, 1000}};
  for (const auto& [begin, end, steps] : schedules) {
    DitConfig config = dit_preset("dit-tiny").value();
    EXPECT_NO_THROW(check_config(config, "c"));
    config.beta_begin = begin;
    config.beta_end = end;
    config.timesteps = steps;
    EXPECT_THROW(check_config(config, "c"), UserError) << begin << " " << end << " " << steps;
  }
}

TEST(Config, WhatIsWrittenIsReadBack) {
  for (const std::string& name : preset_names()) {
    for (const Task task : {Task::causal_lm, Task::sequence_classification}) {
      LanguageConfig config = preset_config(name).value();
      if (family_of(config).only_classifies && task == Task::causal_lm) continue;
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
      EXPECT_EQ(again.positions, config.positions) << name;
      EXPECT_EQ(again.padding_id, config.padding_id) << name;
      EXPECT_EQ(again.score_scalar, config.score_scalar) << name;
      EXPECT_EQ(again.window, config.window) << name;
      EXPECT_EQ(again.sliding, config.sliding) << name;
      for (int64_t layer = 0; layer < config.layers; ++layer) {
        for (const int64_t tokens : {int64_t{1}, config.positions}) {
          const RopeFrequencies a = rope_frequencies(config, layer, tokens),
                                b = rope_frequencies(again, layer, tokens);
          ASSERT_EQ(a.count, b.count) << name;
          EXPECT_EQ(a.scale, b.scale) << name;
          for (int j = 0; j < a.count; ++j) EXPECT_EQ(a.value[j], b.value[j]) << name;
        }
      }
    }
  }
}

// Parameters of the published models, as their cards or files count them; a tied table counts once.
TEST(Config, PresetsHaveThePublishedNumbersOfParameters) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"llama3.1-8b", 8030261248},     {"llama3.2-1b", 1235814400},
      {"llama3.2-3b", 3212749824},     {"qwen1.5-1.8b", 1836828672},
      {"qwen2.5-0.5b", 494032768},     {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-7b", 7615616512},      {"gpt2", 124439808},
      {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},         {"llama3.1-70b", 70553706496},
      {"smollm2-135m", 134515008},     {"smollm2-360m", 361821120},
      {"smollm2-1.7b", 1711376384},    {"smollm3-3b", 3075098624},
      {"qwen3-0.6b", 596049920},       {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},        {"qwen3-8b", 8190735360},
      {"qwen3-14b", 14768307200},      {"qwen3-32b", 32762123264},
      {"mistral-7b-v0.3", 7248023552}, {"phi-3-mini", 3821079552},
      {"phi-4-mini", 3836021760},      {"olmo2-1b", 1484916736},
      {"olmo2-7b", 7298617344},        {"olmo2-13b", 13716198400},
      {"gemma3-270m", 268098176},      {"gemma3-1b", 999885952}};
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
