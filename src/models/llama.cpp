// Llama 3 and Qwen2: a Qwen2 is a Llama whose queries, keys and values have biases.
#include "models/parameters.h"
#include "nn/embedding.h"
#include "nn/transformer_block.h"

namespace veil {

void build_llama(const LanguageConfig& config, const LanguageModelOptions& options, Model& model) {
  Parameters parameters(model, config.initial_deviation);
  const ParamId table = parameters.table("model.embed_tokens.weight", config.vocabulary, config.hidden);
  model.blocks.push_back(std::make_unique<Embedding>("embed", table, -1, options.tokens, config.hidden));

  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("model.layers.{}", i), self = name + ".self_attn.", mlp = name + ".mlp.";
    const int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
    TransformerLayers layers;
    layers.name = fmt::format("layers.{}", i);
    layers.attention_norm = parameters.norm(name + ".input_layernorm", config.hidden, config.norm_epsilon);
    layers.qkv = parameters.projection({{self + "q_proj", queries}, {self + "k_proj", keys}, {self + "v_proj", keys}},
                                       config.hidden, config.qkv_bias);
    layers.attention_out = parameters.projection({{self + "o_proj", config.hidden}}, queries, /*bias=*/false);
    layers.feed_norm = parameters.norm(name + ".post_attention_layernorm", config.hidden, config.norm_epsilon);
    layers.up = parameters.projection({{mlp + "gate_proj", config.feed}, {mlp + "up_proj", config.feed}}, config.hidden,
                                      /*bias=*/false);
    layers.down = parameters.projection({{mlp + "down_proj", config.hidden}}, config.feed, /*bias=*/false);
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

}  // namespace veil
