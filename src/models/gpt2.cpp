// GPT-2: learned positions, LayerNorm, biases everywhere, weights stored [in, out].
#include "base/error.h"
#include "base/text.h"
#include "models/family.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"

namespace veil {
namespace {

void read_gpt2(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  config.hidden = fields.whole("n_embd", 1, kMostWidth);
  config.layers = fields.whole("n_layer", 1, kMostLayers);
  config.heads = config.kv_heads = fields.whole("n_head", 1, kMostWidth);
  config.positions = fields.whole("n_positions", 1, kMostPositions);
  config.feed = fields.whole("n_inner", 1, kMostWidth * 16, 4 * config.hidden);
  config.norm_epsilon = fields.real("layer_norm_epsilon", 0, 1, 1e-5);
  config.rope_theta = 0;
  config.qkv_bias = true;
  config.tied = fields.flag("tie_word_embeddings", true);
  if (config.hidden % config.heads != 0)
    user_error("{}: n_embd {} is not a multiple of n_head {}", where, config.hidden, config.heads);
  config.head_dim = config.hidden / config.heads;
  const std::string activation = fields.text("activation_function");
  if (!activation.empty() && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    user_error("{}: activation_function '{}' is not supported; allowed is gelu_new", where,
               printable(activation));
  if (fields.flag("scale_attn_by_inverse_layer_idx", false))
    user_error("{}: scale_attn_by_inverse_layer_idx is not supported", where);
}

void write_gpt2(const LanguageConfig& config, nlohmann::ordered_json& json) {
  json["n_embd"] = config.hidden;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_positions"] = config.positions;
  json["n_inner"] = config.feed;
  json["layer_norm_epsilon"] = config.norm_epsilon;
  json["activation_function"] = "gelu_new";
}

void build_gpt2(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  Parameters parameters(model, config.initial_deviation);
  const ParamId table =
      parameters.table("transformer.wte.weight", config.vocabulary, config.hidden);
  const ParamId positions =
      parameters.table("transformer.wpe.weight", config.positions, config.hidden);
  model.blocks.push_back(
      std::make_unique<Embedding>("embed", table, positions, options.tokens, config.hidden));

  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("transformer.h.{}", i);
    auto map = [&](const std::string& part, int64_t in, int64_t out) {
      return parameters.projection({{name + part, out}}, in, /*bias=*/true, /*in_out=*/true);
    };
    TransformerLayers layers;
    layers.name = fmt::format("h.{}", i);
    layers.attention_norm =
        parameters.norm(name + ".ln_1", config.hidden, config.norm_epsilon, /*bias=*/true);
    layers.qkv = map(".attn.c_attn", config.hidden, 3 * config.hidden);
    layers.attention_out = map(".attn.c_proj", config.hidden, config.hidden);
    layers.feed_norm =
        parameters.norm(name + ".ln_2", config.hidden, config.norm_epsilon, /*bias=*/true);
    layers.up = map(".mlp.c_fc", config.hidden, config.feed);
    layers.down = map(".mlp.c_proj", config.feed, config.hidden);
    layers.attention = {.heads = config.heads,
                        .kv_heads = config.heads,
                        .head_dim = config.head_dim,
                        .kind = options.attention,
                        .rope = {}};
    layers.activation = Activation::gelu;
    layers.hidden = config.hidden;
    layers.feed = config.feed;
    layers.tokens = options.tokens;
    if (i + 1 == config.layers) choose_token(config, layers);
    model.blocks.push_back(std::make_unique<TransformerBlock>(std::move(layers)));
  }

  const Norm norm =
      parameters.norm("transformer.ln_f", config.hidden, config.norm_epsilon, /*bias=*/true);
  add_head(config, options, norm, table, parameters, model);
}

LanguageConfig gpt2(int64_t hidden, int64_t layers, int64_t heads) {
  LanguageConfig config =
      sized_config(Family::gpt2, {hidden, layers, heads, heads, hidden / heads, 4 * hidden});
  config.vocabulary = 50257;
  config.rope_theta = 0;
  config.positions = 1024;
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

}  // namespace

const LanguageFamily& gpt2_family() {
  static const LanguageFamily family = {
      .family = Family::gpt2,
      .model_type = "gpt2",
      .causal_class = "GPT2LMHeadModel",
      .classifier_class = "GPT2ForSequenceClassification",
      .weight_prefix = "transformer.",
      // masks that old files carry
      .ignored_weights = {"h.*.attn.bias", "h.*.attn.masked_bias"},
      .read = read_gpt2,
      .write = write_gpt2,
      .build = build_gpt2,
      .presets = {{"gpt2", gpt2(768, 12, 12)},
                  {"gpt2-medium", gpt2(1024, 24, 16)},
                  {"gpt2-large", gpt2(1280, 36, 20)},
                  {"gpt2-xl", gpt2(1600, 48, 25)},
                  {"gpt2-tiny", tiny_config(gpt2(64, 2, 4), 1024)}}};
  return family;
}

}  // namespace veil
