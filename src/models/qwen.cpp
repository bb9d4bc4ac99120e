// Qwen2, a Llama whose queries, keys and values have biases, and Qwen3 (dense), which normalises
// each head's queries and keys instead.
#include "models/decoder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

const DecoderDefaults kQwen2 = {}, kQwen3 = {.head_dim = 128};

// Layers from max_window_layers on slide, if any does.
void read_qwen_windows(const ConfigFields& fields, const std::string& where,
                       LanguageConfig& config) {
  if (!fields.flag("use_sliding_window", false)) return;
  const int64_t first = fields.whole("max_window_layers", 0, kMostLayers, 28);
  read_sliding(
      fields, where, [&](int64_t layer) { return layer >= first; }, config);
}

void read_qwen2(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kQwen2, config);
  read_qwen_windows(fields, where, config);
}
void read_qwen3(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kQwen3, config);
  read_qwen_windows(fields, where, config);
}

void write_qwen(const LanguageConfig& config, Json& json) {
  write_decoder(config, kQwen2, json);
  if (config.source.is_object()) return;
  json["use_sliding_window"] = !config.sliding.empty();
  json["sliding_window"] = config.sliding.empty() ? Json() : Json(config.window);
  if (!config.sliding.empty()) json["layer_types"] = layer_types(config);
}

void build_qwen2(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(config, options, {}, model);
}
void build_qwen3(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(config, options, {.head_norms = DecoderParts::HeadNormKind::each_head}, model);
}

LanguageConfig qwen2(const ModelSize& size, int64_t vocabulary, bool tied) {
  LanguageConfig config = sized_config(Family::qwen2, size);
  config.vocabulary = vocabulary;
  config.positions = 32768;
  config.rope_theta = 1e6;
  config.norm_epsilon = 1e-6;
  config.qkv_bias = true;
  config.tied = tied;
  return config;
}

LanguageConfig qwen3(const ModelSize& size, bool tied) {
  LanguageConfig config = qwen2(size, 151936, tied);
  config.family = Family::qwen3;
  config.positions = 40960;
  config.qkv_bias = false;
  return config;
}

}  // namespace

const LanguageFamily& qwen2_family() {
  static const LanguageFamily family = [] {
    LanguageFamily qwen = llama_family();
    qwen.family = Family::qwen2;
    qwen.model_type = "qwen2";
    qwen.causal_class = "Qwen2ForCausalLM";
    qwen.classifier_class = "Qwen2ForSequenceClassification";
    qwen.read = read_qwen2;
    qwen.write = write_qwen;
    qwen.build = build_qwen2;
    qwen.presets = {{"qwen1.5-1.8b", qwen2({2048, 24, 16, 16, 128, 5504}, 151936, false)},
                    {"qwen2.5-0.5b", qwen2({896, 24, 14, 2, 64, 4864}, 151936, true)},
                    {"qwen2.5-1.5b", qwen2({1536, 28, 12, 2, 128, 8960}, 151936, true)},
                    {"qwen2.5-7b", qwen2({3584, 28, 28, 4, 128, 18944}, 152064, false)},
                    {"qwen2-tiny", tiny_decoder(qwen2({64, 2, 4, 2, 16, 176}, 0, false))},
                    {"qwen2-tiny-tied", tiny_decoder(qwen2({64, 2, 4, 2, 16, 176}, 0, true))}};
    return qwen;
  }();
  return family;
}

const LanguageFamily& qwen3_family() {
  static const LanguageFamily family = [] {
    LanguageFamily qwen = qwen2_family();
    qwen.family = Family::qwen3;
    qwen.model_type = "qwen3";
    qwen.causal_class = "Qwen3ForCausalLM";
    qwen.classifier_class = "Qwen3ForSequenceClassification";
    qwen.read = read_qwen3;
    qwen.build = build_qwen3;
    qwen.presets = {{"qwen3-0.6b", qwen3({1024, 28, 16, 8, 128, 3072}, true)},
                    {"qwen3-1.7b", qwen3({2048, 28, 16, 8, 128, 6144}, true)},
                    {"qwen3-4b", qwen3({2560, 36, 32, 8, 128, 9728}, true)},
                    {"qwen3-8b", qwen3({4096, 36, 32, 8, 128, 12288}, false)},
                    {"qwen3-14b", qwen3({5120, 40, 40, 8, 128, 17408}, false)},
                    {"qwen3-32b", qwen3({5120, 64, 64, 8, 128, 25600}, false)},
                    {"qwen3-tiny", tiny_decoder(qwen3({64, 2, 4, 2, 24, 176}, true))}};
    return qwen;
  }();
  return family;
}

}  // namespace veil
