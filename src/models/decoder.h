// What the families of decoders share that are built like Llama: rotary positions, gated
// feed-forward, RMSNorm. For their own files.
#pragma once

#include <functional>

#include "models/family.h"
#include "nn/transformer_block.h"

namespace veil {

// In what a family differs; see nn/transformer_block.h.
struct DecoderParts {
  enum class Norms { before, around, after } norms = Norms::before;
  // of queries and keys, before they turn
  enum class HeadNormKind { none, each_head, all_heads } head_norms = HeadNormKind::none;
  double norm_offset = 0;
  Activation activation = Activation::swiglu;
  bool fused = false;             // qkv_proj and gate_up_proj, each one parameter
  bool scales_embedding = false;  // by the root of the width
};
void build_decoder(const LanguageConfig& config, const LanguageModelOptions& options,
                   const DecoderParts& parts, Model& model);

// What a config.json means that does not say.
struct DecoderDefaults {
  double norm_epsilon = 1e-6, rope_theta = 10000;
  bool tied = false;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  const char* activation_field = "hidden_act";
  const char* activation = "silu";  // the only one that is supported
};
// Sizes and rope; windows are the families' own.
void read_decoder(const ConfigFields& fields, const std::string& where,
                  const DecoderDefaults& defaults, LanguageConfig& config);
void write_decoder(const LanguageConfig& config, const DecoderDefaults& defaults,
                   nlohmann::ordered_json& json);

// One entry of rope_scaling or rope_parameters: the base, and scaling if `scaling` is not null.
void read_rope_entry(const ConfigFields& rope, const std::string& where, double& theta,
                     RopeScaling* scaling, const LanguageConfig& config);

// Which layers slide: `layer_types` if it is given, otherwise `slides` of each. UserError for
// kinds of layers that are not supported.
void read_sliding(const ConfigFields& fields, const std::string& where,
                  const std::function<bool(int64_t layer)>& slides, LanguageConfig& config);
// A window for all layers, or none if `sliding_window` is null.
void read_window_of_all(const ConfigFields& fields, const std::string& where,
                        LanguageConfig& config);
// "layer_types" as transformers writes them.
nlohmann::ordered_json layer_types(const LanguageConfig& config);

LanguageConfig tiny_decoder(const LanguageConfig& config);

}  // namespace veil
