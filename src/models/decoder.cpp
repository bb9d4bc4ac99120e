#include "models/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "nn/embedding.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

int64_t turning_pairs(const LanguageConfig& config) {
  return static_cast<int64_t>(config.rope_fraction * static_cast<double>(config.head_dim)) / 2;
}

std::vector<double> read_factors(const Fields& rope, const std::string& where, const char* name,
                                 int64_t count) {
  std::vector<double> factors;
  if (rope.has(name) && rope.at(name).is_array()) {
    for (const Json& factor : rope.at(name))
      factors.push_back(factor.is_number() ? factor.get<double>() : 0);
  }
  const bool sound =
      std::all_of(factors.begin(), factors.end(), [](double f) { return f >= 1e-6 && f < 1e12; });
  if (std::ssize(factors) != count || !sound)
    user_error("{}: {} must be {} numbers from 1e-6 to 1e12", where, name, count);
  return factors;
}

void read_longrope(const Fields& rope, const std::string& where, const LanguageConfig& config,
                   RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::longrope;
  scaling.short_factor = read_factors(rope, where, "short_factor", turning_pairs(config));
  scaling.long_factor = read_factors(rope, where, "long_factor", turning_pairs(config));
  scaling.original_positions =
      rope.whole("original_max_position_embeddings", 1, kMostPositions, scaling.original_positions);
  const double factor =
      static_cast<double>(config.positions) / static_cast<double>(scaling.original_positions);
  const double usual =
      factor <= 1 ? 1
                  : std::sqrt(1 + std::log(factor) /
                                      std::log(static_cast<double>(scaling.original_positions)));
  scaling.attention_factor = rope.real("attention_factor", 1e-6, 1e6, usual);
  if (!std::isfinite(scaling.attention_factor))
    user_error("{}: original_max_position_embeddings 1 needs an attention_factor", where);
}

// Both spellings: rope_theta and rope_scaling, or rope_parameters. Gemma's form of the latter, with
// an entry for each kind of layer, is read by its own file.
void read_rope(const Fields& fields, const std::string& where, double theta,
               LanguageConfig& config) {
  config.rope_theta = fields.real("rope_theta", 1, 1e12, theta);
  config.rope_fraction = fields.real("partial_rotary_factor", 0, 1, 1);
  config.rope_scaling.original_positions =
      fields.whole("original_max_position_embeddings", 1, kMostPositions, config.positions);
  const char* group = fields.has("rope_parameters") ? "rope_parameters"
                      : fields.has("rope_scaling")  ? "rope_scaling"
                                                    : nullptr;
  if (group) {
    if (!fields.at(group).is_object()) user_error("{}: {} is not an object", where, group);
    const std::string inner = where + ": " + group;
    const Fields rope(fields.at(group), inner);
    config.rope_fraction = rope.real("partial_rotary_factor", 0, 1, config.rope_fraction);
    const bool each_kind = fields.at(group).contains("full_attention");
    if (each_kind && config.family != Family::gemma3)
      user_error("{}: full_attention is not supported for {}", inner, fields.text("model_type"));
    if (!each_kind) read_rope_entry(rope, inner, config.rope_theta, &config.rope_scaling, config);
  }
  if (turning_pairs(config) < 1)
    user_error("{}: partial_rotary_factor {} leaves nothing of a head of {} to turn", where,
               config.rope_fraction, config.head_dim);
}

Json rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::Kind::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_positions}};
    case RopeScaling::Kind::longrope:
      return {{"rope_type", "longrope"},
              {"type", "longrope"},
              {"short_factor", scaling.short_factor},
              {"long_factor", scaling.long_factor}};
    default:
      return nullptr;
  }
}

}  // namespace

void read_rope_entry(const Fields& rope, const std::string& where, double& theta,
                     RopeScaling* scaling, const LanguageConfig& config) {
  theta = rope.real("rope_theta", 1, 1e12, theta);
  const std::string kind = rope.has("rope_type") ? rope.text("rope_type")
                           : rope.has("type")    ? rope.text("type")
                                                 : "default";
  if (kind == "default") return;
  if (!scaling) user_error("{}: rope type '{}' is not supported here", where, printable(kind));
  if (kind == "longrope" || kind == "su") return read_longrope(rope, where, config, *scaling);
  if (kind != "llama3" && kind != "linear")
    user_error("{}: rope type '{}' is not supported; allowed are default, linear, llama3, longrope",
               where, printable(kind));
  scaling->factor = rope.real("factor", 1, 1e6, 1);
  if (kind == "linear") {
    scaling->kind = RopeScaling::Kind::linear;
    return;
  }
  scaling->kind = RopeScaling::Kind::llama3;
  scaling->low_freq_factor = rope.real("low_freq_factor", 1e-6, 1e6, 1);
  scaling->high_freq_factor = rope.real("high_freq_factor", 1e-6, 1e6, 4);
  scaling->original_positions =
      rope.whole("original_max_position_embeddings", 1, kMostPositions, 8192);
  if (scaling->high_freq_factor <= scaling->low_freq_factor)
    user_error("{}: high_freq_factor {} must be above low_freq_factor {}", where,
               scaling->high_freq_factor, scaling->low_freq_factor);
}

void read_decoder(const Fields& fields, const std::string& where, const DecoderDefaults& defaults,
                  LanguageConfig& config) {
  config.hidden = fields.whole("hidden_size", 1, kMostWidth);
  config.layers = fields.whole("num_hidden_layers", 1, kMostLayers);
  config.heads = fields.whole("num_attention_heads", 1, kMostWidth);
  config.kv_heads = fields.whole("num_key_value_heads", 1, kMostWidth, config.heads);
  config.feed = fields.whole("intermediate_size", 1, kMostWidth * 16);
  config.positions = fields.whole("max_position_embeddings", 1, kMostPositions, 2048);
  config.norm_epsilon = fields.real("rms_norm_eps", 0, 1, defaults.norm_epsilon);
  config.tied = fields.flag("tie_word_embeddings", defaults.tied);
  config.qkv_bias = config.family == Family::qwen2;
  if (!config.qkv_bias && fields.flag("attention_bias", false))
    user_error("{}: attention_bias is not supported for {}", where, fields.text("model_type"));
  if (fields.flag("mlp_bias", false)) user_error("{}: mlp_bias is not supported", where);
  if (config.heads % config.kv_heads != 0)
    user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
               config.heads, config.kv_heads);
  if (!fields.has("head_dim") && defaults.head_dim == 0 && config.hidden % config.heads != 0)
    user_error(
        "{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
        where, config.hidden, config.heads);
  config.head_dim =
      fields.whole("head_dim", 2, int64_t{2} * RopeFrequencies::kMost,
                   defaults.head_dim > 0 ? defaults.head_dim : config.hidden / config.heads);
  if (config.head_dim % 2 != 0 || config.head_dim > int64_t{2} * RopeFrequencies::kMost)
    user_error("{}: head_dim {} must be even and at most {}", where, config.head_dim,
               2 * RopeFrequencies::kMost);
  const std::string activation = fields.text(defaults.activation_field);
  if (!activation.empty() && activation != defaults.activation)
    user_error("{}: {} '{}' is not supported; allowed is {}", where, defaults.activation_field,
               printable(activation), defaults.activation);
  read_rope(fields, where, defaults.rope_theta, config);
}

void write_decoder(const LanguageConfig& config, const DecoderDefaults& defaults, Json& json) {
  json["hidden_size"] = config.hidden;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["intermediate_size"] = config.feed;
  json["max_position_embeddings"] = config.positions;
  json["rms_norm_eps"] = config.norm_epsilon;
  json[defaults.activation_field] = defaults.activation;
  if (config.source.is_object()) return;
  json["rope_theta"] = config.rope_theta;
  if (config.rope_fraction != 1) json["partial_rotary_factor"] = config.rope_fraction;
  if (config.rope_scaling.kind != RopeScaling::Kind::none)
    json["rope_scaling"] = rope_scaling_json(config.rope_scaling);
  if (config.rope_scaling.kind == RopeScaling::Kind::longrope)
    json["original_max_position_embeddings"] = config.rope_scaling.original_positions;
}

void read_sliding(const Fields& fields, const std::string& where,
                  const std::function<bool(int64_t layer)>& slides, LanguageConfig& config) {
  std::vector<bool> sliding;
  for (int64_t i = 0; i < config.layers; ++i) sliding.push_back(slides(i));
  if (fields.has("layer_types")) {
    const Json& types = fields.at("layer_types");
    if (!types.is_array() || std::ssize(types) != config.layers)
      user_error("{}: layer_types must name a kind for each of the {} layers", where,
                 config.layers);
    for (size_t i = 0; i < types.size(); ++i) {
      const std::string type = types[i].is_string() ? types[i].get<std::string>() : types[i].dump();
      if (type != "sliding_attention" && type != "full_attention")
        user_error(
            "{}: layer type '{}' is not supported; allowed are full_attention, "
            "sliding_attention",
            where, printable(type));
      sliding[i] = type == "sliding_attention";
    }
  }
  if (std::none_of(sliding.begin(), sliding.end(), [](bool is) { return is; })) return;
  config.window = fields.whole("sliding_window", 1, kMostPositions);
  config.sliding = std::move(sliding);
}

void read_window_of_all(const Fields& fields, const std::string& where, LanguageConfig& config) {
  const bool windowed = fields.has("sliding_window");
  read_sliding(
      fields, where, [&](int64_t) { return windowed; }, config);
}

Json layer_types(const LanguageConfig& config) {
  Json types = Json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    types.push_back(layer_is(config.sliding, i) ? "sliding_attention" : "full_attention");
  return types;
}

void build_decoder(const LanguageConfig& config, const LanguageModelOptions& options,
                   const DecoderParts& parts, Model& model) {
  using Norms = DecoderParts::Norms;
  Parameters parameters(model, config.initial_deviation);
  const auto norm_of = [&](const std::string& name, int64_t width) {
    return parameters.norm(name, width, config.norm_epsilon, /*bias=*/false, parts.norm_offset);
  };
  const ParamId table =
      parameters.table("model.embed_tokens.weight", config.vocabulary, config.hidden);
  model.blocks.push_back(std::make_unique<Embedding>(
      "embed", table, -1, options.tokens, config.hidden,
      parts.scales_embedding ? std::sqrt(static_cast<double>(config.hidden)) : 0));

  const int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("model.layers.{}", i), self = name + ".self_attn.",
                      mlp = name + ".mlp.";
    TransformerLayers layers;
    layers.name = fmt::format("layers.{}", i);
    if (parts.norms != Norms::after)
      layers.attention_norm = norm_of(name + ".input_layernorm", config.hidden);
    layers.qkv =
        parts.fused
            ? parameters.projection({{self + "qkv_proj", queries + 2 * keys}}, config.hidden, false)
            : parameters.projection(
                  {{self + "q_proj", queries}, {self + "k_proj", keys}, {self + "v_proj", keys}},
                  config.hidden, config.qkv_bias);
    if (parts.head_norms != DecoderParts::HeadNormKind::none) {
      const bool each = parts.head_norms == DecoderParts::HeadNormKind::each_head;
      layers.head_norms = {norm_of(self + "q_norm", each ? config.head_dim : queries),
                           norm_of(self + "k_norm", each ? config.head_dim : keys)};
    }
    layers.attention_out =
        parameters.projection({{self + "o_proj", config.hidden}}, queries, /*bias=*/false);
    // behind attention, or in front of the feed-forward, as Llama names it
    const Norm second = norm_of(name + ".post_attention_layernorm", config.hidden);
    (parts.norms == Norms::before ? layers.feed_norm : layers.attention_post_norm) = second;
    if (parts.norms == Norms::around)
      layers.feed_norm = norm_of(name + ".pre_feedforward_layernorm", config.hidden);
    layers.up =
        parts.fused
            ? parameters.projection({{mlp + "gate_up_proj", 2 * config.feed}}, config.hidden, false)
            : parameters.projection(
                  {{mlp + "gate_proj", config.feed}, {mlp + "up_proj", config.feed}}, config.hidden,
                  /*bias=*/false);
    layers.down =
        parameters.projection({{mlp + "down_proj", config.hidden}}, config.feed, /*bias=*/false);
    if (parts.norms != Norms::before)
      layers.feed_post_norm = norm_of(name + ".post_feedforward_layernorm", config.hidden);
    layers.attention = {.heads = config.heads,
                        .kv_heads = config.kv_heads,
                        .head_dim = config.head_dim,
                        .kind = options.attention,
                        .rope = rope_frequencies(config, i, options.tokens),
                        .scale = config.score_scalar > 0 ? 1 / std::sqrt(config.score_scalar) : 0,
                        .window = layer_is(config.sliding, i) ? config.window : 0};
    layers.activation = parts.activation;
    layers.hidden = config.hidden;
    layers.feed = config.feed;
    layers.tokens = options.tokens;
    if (i + 1 == config.layers) choose_token(config, layers);
    model.blocks.push_back(std::make_unique<TransformerBlock>(std::move(layers)));
  }
  add_head(config, options, norm_of("model.norm", config.hidden), table, parameters, model);
}

LanguageConfig tiny_decoder(const LanguageConfig& config) {
  return tiny_config(config, 8192);
}

}  // namespace veil
