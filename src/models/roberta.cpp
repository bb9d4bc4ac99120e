// RoBERTa for sequence classification: an encoder that sees text in both directions and no padding,
// with norms of the sums.
#include "base/error.h"
#include "base/text.h"
#include "models/family.h"
#include "nn/encoder_classifier.h"
#include "nn/encoder_embedding.h"
#include "nn/transformer_block.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRobertaPadding = 1;

// Real tokens take positions from padding_id + 1 on.
int64_t position_rows(const LanguageConfig& config) {
  return config.positions + config.padding_id + 1;
}

void read_roberta(const ConfigFields& fields, const std::string& where, LanguageConfig& config) {
  config.hidden = fields.whole("hidden_size", 1, kMostWidth);
  config.layers = fields.whole("num_hidden_layers", 1, kMostLayers);
  config.heads = config.kv_heads = fields.whole("num_attention_heads", 1, kMostWidth);
  config.feed = fields.whole("intermediate_size", 1, kMostWidth * 16);
  config.norm_epsilon = fields.real("layer_norm_eps", 0, 1, 1e-12);
  config.token_types = fields.whole("type_vocab_size", 1, kMostWidth, 2);
  config.padding_id = fields.whole("pad_token_id", 0, config.vocabulary - 1, kRobertaPadding);
  if (config.padding_id >= config.vocabulary)
    user_error("{}: pad_token_id {} (its default) must be below vocab_size {}", where,
               config.padding_id, config.vocabulary);
  const int64_t rows = fields.whole("max_position_embeddings", 1, kMostPositions, 512);
  if (rows <= config.padding_id + 1)
    user_error("{}: max_position_embeddings {} must be above pad_token_id {} + 1", where, rows,
               config.padding_id);
  config.positions = rows - config.padding_id - 1;
  config.rope_theta = 0;
  config.qkv_bias = true;
  config.tied = fields.flag("tie_word_embeddings", true);
  if (config.hidden % config.heads != 0)
    user_error("{}: hidden_size {} is not a multiple of num_attention_heads {}", where,
               config.hidden, config.heads);
  config.head_dim = config.hidden / config.heads;
  if (config.head_dim % 2 != 0)
    user_error("{}: heads of {} are not supported; their width must be even", where,
               config.head_dim);
  const std::string activation = fields.text("hidden_act");
  if (!activation.empty() && activation != "gelu")
    user_error("{}: hidden_act '{}' is not supported; allowed is gelu", where,
               printable(activation));
  const std::string positions = fields.text("position_embedding_type");
  if (!positions.empty() && positions != "absolute")
    user_error("{}: position_embedding_type '{}' is not supported; allowed is absolute", where,
               printable(positions));
  for (const char* name : {"is_decoder", "add_cross_attention"}) {
    if (fields.flag(name, false)) user_error("{}: {} is not supported", where, name);
  }
}

void write_roberta(const LanguageConfig& config, Json& json) {
  json["hidden_size"] = config.hidden;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["intermediate_size"] = config.feed;
  json["max_position_embeddings"] = position_rows(config);
  json["type_vocab_size"] = config.token_types;
  json["layer_norm_eps"] = config.norm_epsilon;
  json["hidden_act"] = "gelu";
}

void build_roberta(const LanguageConfig& config, const LanguageModelOptions& options,
                   Model& model) {
  VEIL_CHECK(config.padding_id >= 0, "a RoBERTa without a padding token");
  Parameters parameters(model, config.initial_deviation);
  const auto norm_of = [&](const std::string& name) {
    return parameters.norm(name, config.hidden, config.norm_epsilon, /*bias=*/true);
  };
  EncoderEmbedding::Layers embedding;
  const std::string first = "roberta.embeddings.";
  embedding.table =
      parameters.table(first + "word_embeddings.weight", config.vocabulary, config.hidden);
  embedding.positions =
      parameters.table(first + "position_embeddings.weight", position_rows(config), config.hidden);
  embedding.types =
      parameters.table(first + "token_type_embeddings.weight", config.token_types, config.hidden);
  embedding.norm = norm_of(first + "LayerNorm");
  embedding.tokens = options.tokens;
  embedding.hidden = config.hidden;
  embedding.padding_id = config.padding_id;
  model.blocks.push_back(std::make_unique<EncoderEmbedding>(embedding));

  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("roberta.encoder.layer.{}.", i),
                      self = name + "attention.self.";
    const auto map = [&](const std::string& part, int64_t in, int64_t out) {
      return parameters.projection({{name + part, out}}, in, /*bias=*/true);
    };
    TransformerLayers layers;
    layers.name = fmt::format("layer.{}", i);
    layers.qkv = parameters.projection({{self + "query", config.hidden},
                                        {self + "key", config.hidden},
                                        {self + "value", config.hidden}},
                                       config.hidden, /*bias=*/true);
    layers.attention_out = map("attention.output.dense", config.hidden, config.hidden);
    layers.feed_norm = norm_of(name + "attention.output.LayerNorm");
    layers.up = map("intermediate.dense", config.hidden, config.feed);
    layers.down = map("output.dense", config.feed, config.hidden);
    layers.output_norm = norm_of(name + "output.LayerNorm");
    layers.attention = {.heads = config.heads,
                        .kv_heads = config.heads,
                        .head_dim = config.head_dim,
                        .causal = false,
                        .kind = options.attention,
                        .rope = {}};
    layers.activation = Activation::gelu_erf;
    layers.hidden = config.hidden;
    layers.feed = config.feed;
    layers.tokens = options.tokens;
    layers.masks_padding = true;
    layers.padding_id = config.padding_id;
    if (i + 1 == config.layers) layers.goes_on = GoesOn::first;
    model.blocks.push_back(std::make_unique<TransformerBlock>(std::move(layers)));
  }

  EncoderClassifier::Layers head;
  head.dense =
      parameters.projection({{"classifier.dense", config.hidden}}, config.hidden, /*bias=*/true);
  head.out =
      parameters.projection({{"classifier.out_proj", config.labels}}, config.hidden, /*bias=*/true);
  model.loss = std::make_unique<EncoderClassifier>(head);
}

LanguageConfig roberta(int64_t hidden, int64_t layers, int64_t heads) {
  LanguageConfig config =
      sized_config(Family::roberta, {hidden, layers, heads, heads, hidden / heads, 4 * hidden});
  config.task = Task::sequence_classification;
  config.vocabulary = 50265;
  config.rope_theta = 0;
  config.positions = 512;
  config.qkv_bias = true;
  config.tied = true;
  config.padding_id = kRobertaPadding;
  return config;
}

LanguageConfig tiny_roberta() {
  LanguageConfig config = tiny_config(roberta(64, 2, 4), 512);
  config.padding_id = 257;  // the byte tokenizer's
  return config;
}

}  // namespace

const LanguageFamily& roberta_family() {
  static const LanguageFamily family = {
      .family = Family::roberta,
      .model_type = "roberta",
      .causal_class = "RobertaForCausalLM",
      .classifier_class = "RobertaForSequenceClassification",
      .weight_prefix = "roberta.",
      .ignored_weights = {"embeddings.position_ids", "pooler.*"},
      .language_head = {"lm_head.*"},
      .classifier_head = {"classifier.dense.weight", "classifier.dense.bias",
                          "classifier.out_proj.weight", "classifier.out_proj.bias"},
      .only_classifies = true,
      .read = read_roberta,
      .write = write_roberta,
      .build = build_roberta,
      .presets = {{"roberta-base", roberta(768, 12, 12)},
                  {"roberta-large", roberta(1024, 24, 16)},
                  {"roberta-tiny", tiny_roberta()}}};
  return family;
}

}  // namespace veil
