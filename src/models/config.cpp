#include "models/config.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "models/config_fields.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

constexpr int64_t kMostWidth = int64_t{1} << 20, kMostLayers = 4096, kMostPositions = int64_t{1} << 30;

Family family_of(const Fields& fields, const std::string& where) {
  const std::string type = fields.text("model_type");
  Family family{};
  if (!find_name(type, family))
    user_error("{}: model_type '{}' is not supported; allowed are {}", where, type, join(all_names<Family>(), ", "));
  return family;
}

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
    user_error("{}: rope type '{}' is not supported; allowed are default, linear, llama3", where, kind);
  scaling.factor = rope.real("factor", 1, 1e6, 1);
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    return;
  }
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.low_freq_factor = rope.real("low_freq_factor", 1e-6, 1e6, 1);
  scaling.high_freq_factor = rope.real("high_freq_factor", 1e-6, 1e6, 4);
  scaling.original_positions = rope.whole("original_max_position_embeddings", 1, kMostPositions, 8192);
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    user_error("{}: high_freq_factor {} must be above low_freq_factor {}", inner, scaling.high_freq_factor,
               scaling.low_freq_factor);
}

void read_labels(const Fields& fields, const std::string& where, LanguageConfig& config) {
  config.labels = fields.whole("num_labels", 1, 1 << 20, 3);
  if (!fields.has("id2label")) return;
  if (!fields.at("id2label").is_object() || fields.at("id2label").empty())
    user_error("{}: id2label is not an object with labels", where);
  config.labels = static_cast<int64_t>(fields.at("id2label").size());
}

void read_gpt2(const Fields& fields, const std::string& where, LanguageConfig& config) {
  config.hidden = fields.whole("n_embd", 1, kMostWidth);
  config.layers = fields.whole("n_layer", 1, kMostLayers);
  config.heads = config.kv_heads = fields.whole("n_head", 1, kMostWidth);
  config.positions = fields.whole("n_positions", 1, kMostPositions);
  config.feed = fields.whole("n_inner", 1, kMostWidth * 16, 4 * config.hidden);
  config.norm_epsilon = fields.real("layer_norm_epsilon", 0, 1, 1e-5);
  config.qkv_bias = true;
  config.tied = fields.flag("tie_word_embeddings", true);
  if (config.hidden % config.heads != 0)
    user_error("{}: n_embd {} is not a multiple of n_head {}", where, config.hidden, config.heads);
  config.head_dim = config.hidden / config.heads;
  const std::string activation = fields.text("activation_function");
  if (!activation.empty() && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    user_error("{}: activation_function '{}' is not supported; allowed is gelu_new", where, activation);
  if (fields.flag("scale_attn_by_inverse_layer_idx", false))
    user_error("{}: scale_attn_by_inverse_layer_idx is not supported", where);
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
  if (fields.flag("use_sliding_window", false)) user_error("{}: use_sliding_window is not supported", where);
  if (config.heads % config.kv_heads != 0)
    user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where, config.heads,
               config.kv_heads);
  if (!fields.has("head_dim") && config.hidden % config.heads != 0)
    user_error("{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim", where,
               config.hidden, config.heads);
  config.head_dim = fields.whole("head_dim", 2, int64_t{2} * RopeFrequencies::kMost, config.hidden / config.heads);
  if (config.head_dim % 2 != 0 || config.head_dim > int64_t{2} * RopeFrequencies::kMost)
    user_error("{}: head_dim {} must be even and at most {}", where, config.head_dim, 2 * RopeFrequencies::kMost);
  const std::string activation = fields.text("hidden_act");
  if (!activation.empty() && activation != "silu")
    user_error("{}: hidden_act '{}' is not supported; allowed is silu", where, activation);
  read_rope(fields, where, config);
}

}  // namespace

const NameTable<Family>& names(Family) {
  static const NameTable<Family> table = {{Family::llama, "llama"}, {Family::qwen2, "qwen2"}, {Family::gpt2, "gpt2"}};
  return table;
}

const NameTable<Task>& names(Task) {
  static const NameTable<Task> table = {
      {Task::causal_lm, "causal-lm", {"lm", "causal"}},
      {Task::sequence_classification, "sequence-classification", {"classification", "seqcls"}}};
  return table;
}

LanguageConfig parse_config(const Json& json, const std::string& where) {
  if (!json.is_object()) user_error("{}: not a JSON object", where);
  const Fields fields(json, where);
  LanguageConfig config;
  config.family = family_of(fields, where);
  config.vocabulary = fields.whole("vocab_size", 1, int64_t{1} << 31);
  if (config.family == Family::gpt2) {
    read_gpt2(fields, where, config);
  } else {
    read_llama(fields, where, config);
  }
  if (fields.has("architectures") && fields.at("architectures").is_array()) {
    for (const Json& name : fields.at("architectures")) {
      if (name.is_string() && name.get<std::string>().find("ForSequenceClassification") != std::string::npos)
        config.task = Task::sequence_classification;
    }
  }
  read_labels(fields, where, config);
  if (fields.has("pad_token_id")) config.padding_id = fields.whole("pad_token_id", -1, config.vocabulary - 1);
  config.initial_deviation = fields.real("initializer_range", 0, 10, 0.02);
  config.source = json;
  return config;
}

LanguageConfig read_config(const std::string& path) {
  const std::string text = read_file(path);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) user_error("{}: not valid JSON", path);
  return parse_config(json, path);
}

Json config_json(const LanguageConfig& config) {
  Json json = config.source.is_object() ? config.source : Json::object();
  const bool classifies = config.task == Task::sequence_classification;
  const char* family = config.family == Family::llama ? "Llama" : config.family == Family::qwen2 ? "Qwen2" : "GPT2";
  const char* head = classifies                      ? "ForSequenceClassification"
                     : config.family == Family::gpt2 ? "LMHeadModel"
                                                     : "ForCausalLM";
  json["architectures"] = Json::array({std::string(family) + head});
  json["model_type"] = name_of(config.family);
  json["vocab_size"] = config.vocabulary;
  json["tie_word_embeddings"] = config.tied;
  json["initializer_range"] = config.initial_deviation;
  if (config.padding_id >= 0) json["pad_token_id"] = config.padding_id;
  if (classifies) {
    const bool fits = json.contains("id2label") && static_cast<int64_t>(json["id2label"].size()) == config.labels;
    if (!fits) {
      json["id2label"] = Json::object();
      json["label2id"] = Json::object();
      for (int64_t i = 0; i < config.labels; ++i) {
        json["id2label"][std::to_string(i)] = fmt::format("LABEL_{}", i);
        json["label2id"][fmt::format("LABEL_{}", i)] = i;
      }
    }
  }
  if (config.family == Family::gpt2) {
    json["n_embd"] = config.hidden;
    json["n_layer"] = config.layers;
    json["n_head"] = config.heads;
    json["n_positions"] = config.positions;
    json["n_inner"] = config.feed;
    json["layer_norm_epsilon"] = config.norm_epsilon;
    json["activation_function"] = "gelu_new";
    return json;
  }
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
  return json;
}

RopeFrequencies rope_frequencies(const LanguageConfig& config) {
  RopeFrequencies frequencies;
  if (config.family == Family::gpt2) return frequencies;
  frequencies.count = static_cast<int>(config.head_dim / 2);
  const RopeScaling& scaling = config.rope_scaling;
  for (int j = 0; j < frequencies.count; ++j) {
    double f = std::pow(config.rope_theta, -2.0 * j / static_cast<double>(config.head_dim));
    if (scaling.kind == RopeScaling::Kind::linear) f /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::llama3) {
      // Long waves are stretched, short ones left alone, those between are mixed.
      const double turns = static_cast<double>(scaling.original_positions) * f / (2 * std::numbers::pi);
      const double smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      if (turns < scaling.low_freq_factor) {
        f /= scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        f = (1 - smooth) * f / scaling.factor + smooth * f;
      }
    }
    frequencies.value[j] = f;
  }
  return frequencies;
}

}  // namespace veil
