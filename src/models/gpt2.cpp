// GPT-2: learned positions, LayerNorm, biases everywhere, weights stored [in, out].
#include "models/parameters.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"

namespace veil {

void build_gpt2(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  Parameters parameters(model, config.initial_deviation);
  const ParamId table = parameters.table("transformer.wte.weight", config.vocabulary, config.hidden);
  const ParamId positions = parameters.table("transformer.wpe.weight", config.positions, config.hidden);
  model.blocks.push_back(std::make_unique<Embedding>("embed", table, positions, options.tokens, config.hidden));

  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("transformer.h.{}", i);
    auto map = [&](const std::string& part, int64_t in, int64_t out) {
      return parameters.projection({{name + part, out}}, in, /*bias=*/true, /*in_out=*/true);
    };
    TransformerLayers layers;
    layers.name = fmt::format("h.{}", i);
    layers.attention_norm = parameters.norm(name + ".ln_1", config.hidden, config.norm_epsilon, /*bias=*/true);
    layers.qkv = map(".attn.c_attn", config.hidden, 3 * config.hidden);
    layers.attention_out = map(".attn.c_proj", config.hidden, config.hidden);
    layers.feed_norm = parameters.norm(name + ".ln_2", config.hidden, config.norm_epsilon, /*bias=*/true);
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
    model.blocks.push_back(std::make_unique<TransformerBlock>(std::move(layers)));
  }

  const Norm norm = parameters.norm("transformer.ln_f", config.hidden, config.norm_epsilon, /*bias=*/true);
  add_head(config, options, norm, table, parameters, model);
}

}  // namespace veil
