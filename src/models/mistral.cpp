// Mistral: a Llama that may see a window of positions only.
#include "models/decoder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

void read_mistral(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, {}, config);
  read_window_of_all(fields, where, config);
}

void write_mistral(const LanguageConfig& config, Json& json) {
  write_decoder(config, {}, json);
  json["sliding_window"] = config.sliding.empty() ? Json() : Json(config.window);
}

void build_mistral(const LanguageConfig& config, const LanguageModelOptions& options,
                   Model& model) {
  build_decoder(config, options, {}, model);
}

LanguageConfig mistral(const ModelSize& size) {
  LanguageConfig config = sized_config(Family::mistral, size);
  config.vocabulary = 32768;
  config.positions = 32768;
  config.rope_theta = 1e6;
  return config;
}

LanguageConfig tiny_mistral() {
  LanguageConfig config = tiny_decoder(mistral({64, 2, 4, 2, 16, 176}));
  config.window = 5;
  config.sliding = {true, true};
  return config;
}

}  // namespace

const LanguageFamily& mistral_family() {
  static const LanguageFamily family = [] {
    LanguageFamily own = llama_family();
    own.family = Family::mistral;
    own.model_type = "mistral";
    own.causal_class = "MistralForCausalLM";
    own.classifier_class = "MistralForSequenceClassification";
    own.read = read_mistral;
    own.write = write_mistral;
    own.build = build_mistral;
    own.presets = {{"mistral-7b-v0.3", mistral({4096, 32, 32, 8, 128, 14336})},
                   {"mistral-tiny", tiny_mistral()}};
    return own;
  }();
  return family;
}

}  // namespace veil
