// Phi-3 and Phi-4-mini: a Llama whose queries, keys and values are one parameter, as are gate and
// up.
#include <cmath>

#include "models/decoder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

const DecoderDefaults kPhi3 = {.norm_epsilon = 1e-5};

void read_phi3(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kPhi3, config);
  read_window_of_all(fields, where, config);
}

void write_phi3(const LanguageConfig& config, Json& json) {
  write_decoder(config, kPhi3, json);
  json["sliding_window"] = config.sliding.empty() ? Json() : Json(config.window);
  if (!json.contains("original_max_position_embeddings"))
    json["original_max_position_embeddings"] = config.positions;
  // without it transformers assumes Phi-3's own, which another vocabulary may not have
  if (config.padding_id < 0 && !json.contains("pad_token_id")) json["pad_token_id"] = nullptr;
}

void build_phi3(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(config, options, {.fused = true}, model);
}

LanguageConfig phi3(const ModelSize& size, int64_t vocabulary) {
  LanguageConfig config = sized_config(Family::phi3, size);
  config.vocabulary = vocabulary;
  return config;
}

// Every layer slides.
LanguageConfig with_window(LanguageConfig config, int64_t window) {
  config.window = window;
  config.sliding.assign(static_cast<size_t>(config.layers), true);
  return config;
}

LanguageConfig phi3_mini() {
  LanguageConfig config = with_window(phi3({3072, 32, 32, 32, 96, 8192}, 32064), 2047);
  config.positions = 4096;
  return config;
}

LanguageConfig phi4_mini() {
  LanguageConfig config = with_window(phi3({3072, 32, 24, 8, 128, 8192}, 200064), 262144);
  config.positions = 131072;
  config.rope_fraction = 0.75;
  config.tied = true;
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = RopeScaling::Kind::longrope;
  scaling.original_positions = 4096;
  scaling.short_factor.assign(48, 1.0);
  scaling.long_factor = {
      1.0,         1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,  1.956131817,
      2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023,
      4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372,
      10.4687158,  11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807,
      22.90118105, 25.61086418, 28.64115884, 32.03,       32.1,        32.13,       32.23,
      32.6,        32.61,       32.64,       32.66,       32.7,        32.71,       32.93,
      32.97,       33.28,       33.49,       33.5,        44.16,       47.77};
  scaling.attention_factor = std::sqrt(1 + std::log(131072.0 / 4096) / std::log(4096.0));
  return config;
}

}  // namespace

const LanguageFamily& phi3_family() {
  static const LanguageFamily family = [] {
    LanguageFamily own = llama_family();
    own.family = Family::phi3;
    own.model_type = "phi3";
    own.causal_class = "Phi3ForCausalLM";
    own.classifier_class = "Phi3ForSequenceClassification";
    own.read = read_phi3;
    own.write = write_phi3;
    own.build = build_phi3;
    own.presets = {{"phi-3-mini", phi3_mini()},
                   {"phi-4-mini", phi4_mini()},
                   {"phi3-tiny", tiny_decoder(phi3({64, 2, 4, 2, 16, 176}, 0))}};
    return own;
  }();
  return family;
}

}  // namespace veil
