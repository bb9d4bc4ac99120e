// Llama 3, and SmolLM3: a Llama some of whose layers have no positions.
#include "base/error.h"
#include "models/decoder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

void read_llama(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, {}, config);
}

void write_llama(const LanguageConfig& config, Json& json) {
  write_decoder(config, {}, json);
}

void build_llama(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(config, options, {}, model);
}

const DecoderDefaults kSmolLm3 = {.rope_theta = 2e6, .tied = true};

void read_smollm3(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kSmolLm3, config);
  if (fields.flag("use_sliding_window", false))
    user_error("{}: use_sliding_window is not supported for smollm3", where);
  if (fields.has("no_rope_layers")) {
    // 1 for a layer that turns, in spite of the name
    const Json& turns = fields.at("no_rope_layers");
    if (!turns.is_array() || std::ssize(turns) != config.layers)
      user_error("{}: no_rope_layers must have a number for each of the {} layers", where,
                 config.layers);
    for (const Json& layer : turns) config.still.push_back(layer == 0 || layer == false);
    return;
  }
  const int64_t interval = fields.whole("no_rope_layer_interval", 1, kMostLayers, 4);
  for (int64_t i = 0; i < config.layers; ++i) config.still.push_back((i + 1) % interval == 0);
}

void write_smollm3(const LanguageConfig& config, Json& json) {
  write_decoder(config, kSmolLm3, json);
  json["no_rope_layers"] = Json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    json["no_rope_layers"].push_back(layer_is(config.still, i) ? 0 : 1);
  // without it transformers assumes SmolLM3's own, which another vocabulary may not have
  if (config.padding_id < 0 && !json.contains("pad_token_id")) json["pad_token_id"] = nullptr;
}

LanguageConfig llama3(const ModelSize& size, double rope_factor, bool tied) {
  LanguageConfig config = sized_config(Family::llama, size);
  config.vocabulary = 128256;
  config.positions = 131072;
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScaling::Kind::llama3, rope_factor, 1, 4, 8192};
  config.tied = tied;
  return config;
}

LanguageConfig smollm2(const ModelSize& size, double rope_theta) {
  LanguageConfig config = sized_config(Family::llama, size);
  config.vocabulary = 49152;
  config.positions = 8192;
  config.rope_theta = rope_theta;
  config.tied = true;
  return config;
}

LanguageConfig smollm3(const ModelSize& size) {
  LanguageConfig config = sized_config(Family::smollm3, size);
  config.vocabulary = 128256;
  config.positions = 65536;
  config.rope_theta = 5e6;
  config.norm_epsilon = 1e-6;
  config.tied = true;
  for (int64_t i = 0; i < config.layers; ++i) config.still.push_back((i + 1) % 4 == 0);
  return config;
}

LanguageConfig tiny_smollm3() {
  LanguageConfig config = tiny_decoder(smollm3({64, 2, 4, 2, 16, 176}));
  config.still = {false, true};
  return config;
}

}  // namespace

const LanguageFamily& llama_family() {
  static const LanguageFamily family = {
      .family = Family::llama,
      .model_type = "llama",
      .causal_class = "LlamaForCausalLM",
      .classifier_class = "LlamaForSequenceClassification",
      .weight_prefix = "model.",
      .ignored_weights = {"*.rotary_emb.inv_freq"},
      .read = read_llama,
      .write = write_llama,
      .build = build_llama,
      .presets = {{"llama3.1-8b", llama3({4096, 32, 32, 8, 128, 14336}, 8, false)},
                  {"llama3.1-70b", llama3({8192, 80, 64, 8, 128, 28672}, 8, false)},
                  {"llama3.2-1b", llama3({2048, 16, 32, 8, 64, 8192}, 32, true)},
                  {"llama3.2-3b", llama3({3072, 28, 24, 8, 128, 8192}, 32, true)},
                  {"smollm2-135m", smollm2({576, 30, 9, 3, 64, 1536}, 100000)},
                  {"smollm2-360m", smollm2({960, 32, 15, 5, 64, 2560}, 100000)},
                  {"smollm2-1.7b", smollm2({2048, 24, 32, 32, 64, 8192}, 130000)},
                  {"llama-tiny", tiny_decoder(llama3({64, 2, 4, 2, 16, 176}, 8, false))},
                  {"llama-tiny-tied", tiny_decoder(llama3({64, 2, 4, 2, 16, 176}, 8, true))}}};
  return family;
}

const LanguageFamily& smollm3_family() {
  static const LanguageFamily family = [] {
    LanguageFamily smol = llama_family();
    smol.family = Family::smollm3;
    smol.model_type = "smollm3";
    smol.causal_class = "SmolLM3ForCausalLM";
    smol.classifier_class = "SmolLM3ForSequenceClassification";
    smol.read = read_smollm3;
    smol.write = write_smollm3;
    smol.presets = {{"smollm3-3b", smollm3({2048, 36, 16, 4, 128, 11008})},
                    {"smollm3-tiny", tiny_smollm3()}};
    return smol;
  }();
  return family;
}

}  // namespace veil
