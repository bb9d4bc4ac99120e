// Language models by family: Llama, Qwen, Gemma, RoBERTa and others. A family is one value in one
// source file (llama.cpp, gpt2.cpp, roberta.cpp) that says how its config.json is read and written,
// which blocks it is made of, how its weights are named and which presets it has. Everything else
// asks this value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/config_fields.h"
#include "models/shape.h"
#include "nn/attention.h"
#include "nn/norm.h"
#include "nn/projection.h"
#include "nn/transformer_block.h"

namespace veil {

struct LanguageModelOptions {
  int64_t tokens = 1024;  // in a sequence; samples are padded to it on the right
  AttentionKind attention = AttentionKind::automatic;
  int64_t logit_piece_bytes = 0;  // LmHead::Layers::piece_bytes
  std::optional<LoraSettings> lora = {};
};

struct LanguagePreset {
  std::string name;
  LanguageConfig config;
};

struct LanguageFamily {
  Family family;
  std::string model_type;                      // in config.json
  std::string causal_class, classifier_class;  // "architectures" in config.json
  std::string weight_prefix;                   // "model.", which some files leave out
  std::vector<std::string> ignored_weights;    // patterns of what is in files and no parameter
  // Patterns of a language model's head, which a classifier does without, and names of the
  // classifier's head, which starts at random if a file has none.
  std::vector<std::string> language_head = {"lm_head.weight"}, classifier_head = {"score.weight"};
  bool only_classifies = false;  // there is no language model of it here
  // The family's own fields. `read` throws a UserError, which begins with `where`, for a missing or
  // absurd field and for features that are not supported.
  void (*read)(const ConfigFields& fields, const std::string& where, LanguageConfig& config);
  void (*write)(const LanguageConfig& config, nlohmann::ordered_json& json);
  // Fills blocks and loss of a model whose data and name are set.
  void (*build)(const LanguageConfig& config, const LanguageModelOptions& options, Model& model);
  std::vector<LanguagePreset> presets;
};

// The registry: a new family is added to Family, declared here and listed in family.cpp.
const LanguageFamily& llama_family();
const LanguageFamily& smollm3_family();
const LanguageFamily& qwen2_family();
const LanguageFamily& qwen3_family();
const LanguageFamily& mistral_family();
const LanguageFamily& phi3_family();
const LanguageFamily& olmo2_family();
const LanguageFamily& gemma3_family();
const LanguageFamily& gpt2_family();
const LanguageFamily& roberta_family();
const std::vector<const LanguageFamily*>& language_families();
const LanguageFamily& family_of(const LanguageConfig& config);

// Reads config.json in the older spelling (rope_theta, rope_scaling, torch_dtype) and the newer
// (rope_parameters, dtype). Throws UserError, which begins with `where`, for a missing or absurd
// field or a model that is not supported.
LanguageConfig parse_config(const nlohmann::ordered_json& json, const std::string& where);
LanguageConfig read_config(const std::string& path);
// A config.json that transformers loads; the source's other fields are kept.
nlohmann::ordered_json config_json(const LanguageConfig& config);

// The model as a list of blocks, for sequences of a given length. Parameters carry the names of the
// published checkpoints. Throws UserError if the sequence is longer than the model's positions.
Model language_model(const LanguageConfig& config, const LanguageModelOptions& options);

// Presets of all families: models by name, without a download.
std::optional<LanguageConfig> preset_config(const std::string& name);  // in any case
const std::vector<std::string>& preset_names();
// "meta-llama/Llama-3.1-8B-Instruct" is the shape of "llama3.1-8b"; nothing for what has no preset.
std::optional<std::string> preset_of_hub_id(const std::string& id);

// For the families' own files.

// Lists a model's parameters while its blocks are put together.
class Parameters {
 public:
  Parameters(Model& model, double deviation) : model_(model), deviation_(deviation) {}

  ParamId table(const std::string& name, int64_t rows, int64_t columns) {
    return add(name, {rows, columns}, {Init::Kind::normal, deviation_});
  }
  // One map, or several that read the same input: their rows are joined into one product.
  struct Part {
    std::string name;  // without ".weight"
    int64_t out;
  };
  Projection projection(const std::vector<Part>& parts, int64_t in, bool bias, bool in_out = false);
  // `offset`: what is added to the weight, which starts at 1 less than that.
  Norm norm(const std::string& name, int64_t width, double epsilon, bool bias = false,
            double offset = 0);

 private:
  ParamId add(const std::string& name, std::vector<int64_t> dims, Init init, bool joined = false);
  void add_adapters(const std::vector<Part>& parts, Projection& projection);
  Model& model_;
  double deviation_;
};

// What the head of the task does not read, the last block does not hand on.
void choose_token(const LanguageConfig& config, TransformerLayers& last_block);
// Final norm and head of either task; `table` is the embedding's, for tied weights.
void add_head(const LanguageConfig& config, const LanguageModelOptions& options, const Norm& norm,
              ParamId table, Parameters& parameters, Model& model);

// A preset's numbers before its family's own are set.
struct ModelSize {
  int64_t hidden, layers, heads, kv_heads, head_dim, feed;
};
LanguageConfig sized_config(Family family, const ModelSize& size);
// The tiny presets fit the byte tokenizer and train on a CPU in seconds.
LanguageConfig tiny_config(LanguageConfig config, int64_t positions);

}  // namespace veil
