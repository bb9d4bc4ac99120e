// OLMo 2: norms behind attention and feed-forward instead of in front of them, and over all queries
// and all keys of a position.
#include "models/decoder.h"

namespace veil {
namespace {

const DecoderDefaults kOlmo2 = {.norm_epsilon = 1e-5};

void read_olmo2(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kOlmo2, config);
}

void write_olmo2(const LanguageConfig& config, nlohmann::ordered_json& json) {
  write_decoder(config, kOlmo2, json);
}

void build_olmo2(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(
      config, options,
      {.norms = DecoderParts::Norms::after, .head_norms = DecoderParts::HeadNormKind::all_heads},
      model);
}

LanguageConfig olmo2(const ModelSize& size) {
  LanguageConfig config = sized_config(Family::olmo2, size);
  config.vocabulary = 100352;
  config.positions = 4096;
  config.rope_theta = 500000;
  config.norm_epsilon = 1e-6;
  return config;
}

}  // namespace

const LanguageFamily& olmo2_family() {
  static const LanguageFamily family = [] {
    LanguageFamily own = llama_family();
    own.family = Family::olmo2;
    own.model_type = "olmo2";
    own.causal_class = "Olmo2ForCausalLM";
    own.classifier_class = "Olmo2ForSequenceClassification";
    own.read = read_olmo2;
    own.write = write_olmo2;
    own.build = build_olmo2;
    own.presets = {{"olmo2-1b", olmo2({2048, 16, 16, 16, 128, 8192})},
                   {"olmo2-7b", olmo2({4096, 32, 32, 32, 128, 11008})},
                   {"olmo2-13b", olmo2({5120, 40, 40, 40, 128, 13824})},
                   {"olmo2-tiny", tiny_decoder(olmo2({64, 2, 4, 4, 16, 176}))}};
    return own;
  }();
  return family;
}

}  // namespace veil
