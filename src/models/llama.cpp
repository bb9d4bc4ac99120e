// Llama 3 and Qwen2: a Qwen2 is a Llama whose queries, keys and values have biases.
#include "base/error.h"
#include "models/family.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

void read_rope(const Fields& fields, const std::string& where, LanguageConfig& config) {
  const char* group = fields.has("rope_parameters") ? "rope_parameters"
                      : fields.has("rope_scaling")  ? "rope_scaling"
                                                    : nullptr;
  config.rope_theta = fields.real("rope_theta", 1, 1e12, 10000);
  if (!group) return;
  if (!fields.at(group).is_object()) user_error("{}: {} is not an object", where, group);
  const std::string inner = where + ": " + group;
  const Fields rope(fields.at(group), inner);
  config.rope_theta = rope.real("rope_theta", 1, 1e12, config.rope_theta);
  const std::string kind = rope.has("rope_type") ? rope.text("rope_type")
                           : rope.has("type")    ? rope.text("type")
                                                 : "default";
  RopeScaling& scaling = config.rope_scaling;
  if (kind == "default") return;
  if (kind != "llama3" && kind != "linear")
    user_error("{}: rope type '{}' is not supported; allowed are default, linear, llama3", where,
               kind);
  scaling.factor = rope.real("factor", 1, 1e6, 1);
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    return;
  }
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.low_freq_factor = rope.real("low_freq_factor", 1e-6, 1e6, 1);
  scaling.high_freq_factor = rope.real("high_freq_factor", 1e-6, 1e6, 4);
  scaling.original_positions =
      rope.whole("original_max_position_embeddings", 1, kMostPositions, 8192);
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    user_error("{}: high_freq_factor {} must be above low_freq_factor {}", inner,
               scaling.high_freq_factor, scaling.low_freq_factor);
}

void read_llama(const Fields& fields, const std::string& where, LanguageConfig& config) {
  config.hidden = fields.whole("hidden_size", 1, kMostWidth);
  config.layers = fields.whole("num_hidden_layers", 1, kMostLayers);
  config.heads = fields.whole("num_attention_heads", 1, kMostWidth);
  config.kv_heads = fields.whole("num_key_value_heads", 1, kMostWidth, config.heads);
  config.feed = fields.whole("intermediate_size", 1, kMostWidth * 16);
  config.positions = fields.whole("max_position_embeddings", 1, kMostPositions, 2048);
  config.norm_epsilon = fields.real("rms_norm_eps", 0, 1, 1e-6);
  config.tied = fields.flag("tie_word_embeddings", false);
  config.qkv_bias = config.family == Family::qwen2 || fields.flag("attention_bias", false);
  if (config.family == Family::llama && config.qkv_bias)
    user_error("{}: attention_bias is not supported for llama", where);
  if (fields.flag("mlp_bias", false)) user_error("{}: mlp_bias is not supported", where);
  if (fields.flag("use_sliding_window", false))
    user_error("{}: use_sliding_window is not supported", where);
  if (config.heads % config.kv_heads != 0)
    user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
               config.heads, config.kv_heads);
  if (!fields.has("head_dim") && config.hidden % config.heads != 0)
    user_error(
        "{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
        where, config.hidden, config.heads);
  config.head_dim = fields.whole("head_dim", 2, int64_t{2} * RopeFrequencies::kMost,
                                 config.hidden / config.heads);
  if (config.head_dim % 2 != 0 || config.head_dim > int64_t{2} * RopeFrequencies::kMost)
    user_error("{}: head_dim {} must be even and at most {}", where, config.head_dim,
               2 * RopeFrequencies::kMost);
  const std::string activation = fields.text("hidden_act");
  if (!activation.empty() && activation != "silu")
    user_error("{}: hidden_act '{}' is not supported; allowed is silu", where, activation);
  read_rope(fields, where, config);
}

void write_llama(const LanguageConfig& config, Json& json) {
  json["hidden_size"] = config.hidden;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["intermediate_size"] = config.feed;
  json["max_position_embeddings"] = config.positions;
  json["rms_norm_eps"] = config.norm_epsilon;
  json["hidden_act"] = "silu";
  if (!config.source.is_object()) {
    json["rope_theta"] = config.rope_theta;
    const RopeScaling& scaling = config.rope_scaling;
    if (scaling.kind == RopeScaling::Kind::linear)
      json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}};
    if (scaling.kind == RopeScaling::Kind::llama3) {
      json["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_freq_factor},
                              {"high_freq_factor", scaling.high_freq_factor},
                              {"original_max_position_embeddings", scaling.original_positions}};
    }
  }
}

void build_llama(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  Parameters parameters(model, config.initial_deviation);
  const ParamId table =
      parameters.table("model.embed_tokens.weight", config.vocabulary, config.hidden);
  model.blocks.push_back(
      std::make_unique<Embedding>("embed", table, -1, options.tokens, config.hidden));

  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("model.layers.{}", i), self = name + ".self_attn.",
                      mlp = name + ".mlp.";
    const int64_t queries = config.heads * config.head_dim,
                  keys = config.kv_heads * config.head_dim;
    TransformerLayers layers;
    layers.name = fmt::format("layers.{}", i);
    layers.attention_norm =
        parameters.norm(name + ".input_layernorm", config.hidden, config.norm_epsilon);
    layers.qkv = parameters.projection(
        {{self + "q_proj", queries}, {self + "k_proj", keys}, {self + "v_proj", keys}},
        config.hidden, config.qkv_bias);
    layers.attention_out =
        parameters.projection({{self + "o_proj", config.hidden}}, queries, /*bias=*/false);
    layers.feed_norm =
        parameters.norm(name + ".post_attention_layernorm", config.hidden, config.norm_epsilon);
    layers.up = parameters.projection(
        {{mlp + "gate_proj", config.feed}, {mlp + "up_proj", config.feed}}, config.hidden,
        /*bias=*/false);
    layers.down =
        parameters.projection({{mlp + "down_proj", config.hidden}}, config.feed, /*bias=*/false);
    layers.attention = {.heads = config.heads,
                        .kv_heads = config.kv_heads,
                        .head_dim = config.head_dim,
                        .kind = options.attention,
                        .rope = rope_frequencies(config)};
    layers.activation = Activation::swiglu;
    layers.hidden = config.hidden;
    layers.feed = config.feed;
    layers.tokens = options.tokens;
    model.blocks.push_back(std::make_unique<TransformerBlock>(std::move(layers)));
  }

  const Norm norm = parameters.norm("model.norm", config.hidden, config.norm_epsilon);
  add_head(config, options, norm, table, parameters, model);
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

LanguageConfig tiny(const LanguageConfig& config) {
  return tiny_config(config, 8192);
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
                  {"llama3.2-1b", llama3({2048, 16, 32, 8, 64, 8192}, 32, true)},
                  {"llama3.2-3b", llama3({3072, 28, 24, 8, 128, 8192}, 32, true)},
                  {"llama-tiny", tiny(llama3({64, 2, 4, 2, 16, 176}, 8, false))},
                  {"llama-tiny-tied", tiny(llama3({64, 2, 4, 2, 16, 176}, 8, true))}}};
  return family;
}

const LanguageFamily& qwen2_family() {
  static const LanguageFamily family = [] {
    LanguageFamily qwen = llama_family();
    qwen.family = Family::qwen2;
    qwen.model_type = "qwen2";
    qwen.causal_class = "Qwen2ForCausalLM";
    qwen.classifier_class = "Qwen2ForSequenceClassification";
    qwen.presets = {{"qwen1.5-1.8b", qwen2({2048, 24, 16, 16, 128, 5504}, 151936, false)},
                    {"qwen2.5-0.5b", qwen2({896, 24, 14, 2, 64, 4864}, 151936, true)},
                    {"qwen2.5-1.5b", qwen2({1536, 28, 12, 2, 128, 8960}, 151936, true)},
                    {"qwen2.5-7b", qwen2({3584, 28, 28, 4, 128, 18944}, 152064, false)},
                    {"qwen2-tiny", tiny(qwen2({64, 2, 4, 2, 16, 176}, 0, false))},
                    {"qwen2-tiny-tied", tiny(qwen2({64, 2, 4, 2, 16, 176}, 0, true))}};
    return qwen;
  }();
  return family;
}

}  // namespace veil
