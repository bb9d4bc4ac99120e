// Gemma 3 (text): norms with 1 + weight around attention and feed-forward and on each head's
// queries and keys, a scaled embedding, and layers that see a window and turn by a base of their
// own.
#include "base/error.h"
#include "models/decoder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

const DecoderDefaults kGemma3 = {.rope_theta = 1e6,
                                 .tied = true,
                                 .head_dim = 256,
                                 .activation_field = "hidden_activation",
                                 .activation = "gelu_pytorch_tanh"};
constexpr double kLocalTheta = 10000;

void read_gemma3(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  read_decoder(fields, where, kGemma3, config);
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.has(name)) user_error("{}: {} is not supported", where, name);
  }
  if (fields.flag("use_bidirectional_attention", false))
    user_error("{}: use_bidirectional_attention is not supported", where);
  config.score_scalar = fields.real("query_pre_attn_scalar", 1e-6, 1e12, 256);
  const int64_t pattern = fields.whole("sliding_window_pattern", 1, kMostLayers,
                                       fields.whole("_sliding_window_pattern", 1, kMostLayers, 6));
  read_sliding(
      fields, where, [&](int64_t layer) { return (layer + 1) % pattern != 0; }, config);
  config.local_rope_theta = fields.real("rope_local_base_freq", 1, 1e12, kLocalTheta);
  if (!fields.has("rope_parameters")) return;
  // the newer form: an entry for each kind of layer
  const Json& both = fields.at("rope_parameters");
  if (both.contains("full_attention") != both.contains("sliding_attention"))
    user_error("{}: rope_parameters must have full_attention and sliding_attention", where);
  if (!both.contains("full_attention")) return;
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const std::string inner = fmt::format("{}: rope_parameters: {}", where, kind);
    if (!both.at(kind).is_object()) user_error("{} is not an object", inner);
    const bool full = std::string(kind) == "full_attention";
    read_rope_entry(ConfigFields(both.at(kind), inner), inner,
                    full ? config.rope_theta : config.local_rope_theta,
                    full ? &config.rope_scaling : nullptr, config);
  }
}

void write_gemma3(const LanguageConfig& config, Json& json) {
  write_decoder(config, kGemma3, json);
  // transformers takes a whole number only, unless the file it came from has another
  const auto whole = static_cast<int64_t>(config.score_scalar);
  if (static_cast<double>(whole) == config.score_scalar) {
    json["query_pre_attn_scalar"] = whole;
  } else {
    json["query_pre_attn_scalar"] = config.score_scalar;
  }
  if (config.source.is_object()) return;
  json["rope_local_base_freq"] = config.local_rope_theta;
  if (!config.sliding.empty()) json["sliding_window"] = config.window;
  json["layer_types"] = layer_types(config);
}

void build_gemma3(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  build_decoder(config, options,
                {.norms = DecoderParts::Norms::around,
                 .head_norms = DecoderParts::HeadNormKind::each_head,
                 .norm_offset = 1,
                 .activation = Activation::geglu,
                 .scales_embedding = true},
                model);
}

// Of `pattern` layers the last sees everything.
LanguageConfig gemma3(const ModelSize& size, int64_t window, int64_t pattern) {
  LanguageConfig config = sized_config(Family::gemma3, size);
  config.vocabulary = 262144;
  config.positions = 32768;
  config.rope_theta = 1e6;
  config.local_rope_theta = kLocalTheta;
  config.norm_epsilon = 1e-6;
  config.score_scalar = static_cast<double>(size.head_dim);
  config.tied = true;
  config.window = window;
  for (int64_t i = 0; i < size.layers; ++i) config.sliding.push_back((i + 1) % pattern != 0);
  return config;
}

// The text model of the 4B, whose weights come inside a model of images and text.
LanguageConfig gemma3_4b() {
  LanguageConfig config = gemma3({2560, 34, 8, 4, 256, 10240}, 1024, 6);
  config.vocabulary = 262208;
  config.positions = 131072;
  config.rope_scaling.kind = RopeScaling::Kind::linear;
  config.rope_scaling.factor = 8;
  return config;
}

}  // namespace

const LanguageFamily& gemma3_family() {
  static const LanguageFamily family = [] {
    LanguageFamily own = llama_family();
    own.family = Family::gemma3;
    own.model_type = "gemma3_text";
    own.causal_class = "Gemma3ForCausalLM";
    own.classifier_class = "Gemma3TextForSequenceClassification";
    own.read = read_gemma3;
    own.write = write_gemma3;
    own.build = build_gemma3;
    own.presets = {{"gemma3-270m", gemma3({640, 18, 4, 1, 256, 2048}, 512, 6)},
                   {"gemma3-1b", gemma3({1152, 26, 4, 1, 256, 6912}, 512, 6)},
                   {"gemma3-4b", gemma3_4b()},
                   {"gemma3-tiny", tiny_decoder(gemma3({64, 2, 4, 2, 24, 176}, 5, 2))}};
    return own;
  }();
  return family;
}

}  // namespace veil
