#include "models/family.h"

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "models/classifier_labels.h"
#include "nn/classifier.h"
#include "nn/lm_head.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

const LanguageFamily& family_of_type(const std::string& type, const std::string& where) {
  for (const LanguageFamily* family : language_families()) {
    if (family->model_type == type) return *family;
  }
  user_error("{}: model_type '{}' is not supported; allowed are {}", where, printable(type),
             join(all_names<Family>(), ", "));
}

void read_labels(const Fields& fields, const std::string& where, LanguageConfig& config) {
  config.labels = fields.whole("num_labels", 1, kMostLabels, 3);
  if (!fields.has("id2label")) return;
  if (!fields.at("id2label").is_object() || fields.at("id2label").empty())
    user_error("{}: id2label is not an object with labels", where);
  config.labels = static_cast<int64_t>(fields.at("id2label").size());
}

}  // namespace

const std::vector<const LanguageFamily*>& language_families() {
  static const std::vector<const LanguageFamily*> families = {
      &llama_family(), &smollm3_family(), &qwen2_family(),  &qwen3_family(), &mistral_family(),
      &phi3_family(),  &olmo2_family(),   &gemma3_family(), &gpt2_family(),  &roberta_family()};
  return families;
}

const LanguageFamily& family_of(const LanguageConfig& config) {
  for (const LanguageFamily* family : language_families()) {
    if (family->family == config.family) return *family;
  }
  check_failed(__FILE__, __LINE__, "not reached", "a family that is not listed");
}

const NameTable<Family>& names(Family) {
  static const NameTable<Family> table = [] {
    NameTable<Family> list;
    for (const LanguageFamily* family : language_families())
      list.push_back({family->family, family->model_type.c_str()});
    return list;
  }();
  return table;
}

LanguageConfig parse_config(const Json& json, const std::string& where) {
  if (!json.is_object()) user_error("{}: not a JSON object", where);
  const Fields fields(json, where);
  LanguageConfig config;
  const std::string type = fields.text("model_type");
  const LanguageFamily& family = family_of_type(type, where);
  config.family = family.family;
  config.vocabulary = fields.whole("vocab_size", 1, int64_t{1} << 31);
  family.read(fields, where, config);
  if (fields.has("architectures") && fields.at("architectures").is_array()) {
    for (const Json& name : fields.at("architectures")) {
      if (name.is_string() &&
          name.get<std::string>().find("ForSequenceClassification") != std::string::npos)
        config.task = Task::sequence_classification;
    }
  }
  if (family.only_classifies) config.task = Task::sequence_classification;
  read_labels(fields, where, config);
  if (fields.has("pad_token_id"))
    config.padding_id = fields.whole("pad_token_id", -1, config.vocabulary - 1);
  config.initial_deviation = fields.real("initializer_range", 0, 10, 0.02);
  config.source = json;
  return config;
}

LanguageConfig read_config(const std::string& path) {
  const std::string text = read_file(path);
  const Json json = try_json<Json>(text);
  if (json.is_discarded()) user_error("{}: not valid JSON", path);
  return parse_config(json, path);
}

Json config_json(const LanguageConfig& config) {
  Json json = config.source.is_object() ? config.source : Json::object();
  const bool classifies = config.task == Task::sequence_classification;
  const LanguageFamily& family = family_of(config);
  json["architectures"] = Json::array({classifies ? family.classifier_class : family.causal_class});
  json["model_type"] = family.model_type;
  json["vocab_size"] = config.vocabulary;
  json["tie_word_embeddings"] = config.tied;
  json["initializer_range"] = config.initial_deviation;
  if (config.padding_id >= 0) json["pad_token_id"] = config.padding_id;
  if (classifies) {
    const bool fits =
        json.contains("id2label") && static_cast<int64_t>(json["id2label"].size()) == config.labels;
    if (!fits) write_label_names(unnamed_labels(config.labels), json);
  }
  family.write(config, json);
  return json;
}

ParamId Parameters::add(const std::string& name, std::vector<int64_t> dims, Init init,
                        bool joined) {
  model_.params.push_back({name, std::move(dims), init, joined});
  return static_cast<ParamId>(model_.params.size()) - 1;
}

Projection Parameters::projection(const std::vector<Part>& parts, int64_t in, bool bias,
                                  bool in_out) {
  VEIL_CHECK(parts.size() == 1 || !in_out, "maps stored [in, out] do not join");
  Projection projection;
  projection.in = in;
  projection.in_out = in_out;
  projection.joined = static_cast<int>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int64_t> dims =
        in_out ? std::vector{in, parts[i].out} : std::vector{parts[i].out, in};
    const ParamId id =
        add(parts[i].name + ".weight", dims, {Init::Kind::normal, deviation_}, /*joined=*/i > 0);
    model_.params.back().in_out = in_out;
    if (i == 0) projection.weight = id;
    projection.out += parts[i].out;
  }
  for (size_t i = 0; bias && i < parts.size(); ++i) {
    const ParamId id =
        add(parts[i].name + ".bias", {parts[i].out}, {Init::Kind::constant, 0}, /*joined=*/i > 0);
    if (i == 0) projection.bias = id;
  }
  add_adapters(parts, projection);
  return projection;
}

// New adapters start as PEFT's do: A uniform in 1 / sqrt(in), B at 0.
void Parameters::add_adapters(const std::vector<Part>& parts, Projection& projection) {
  if (parts.front().name.starts_with("classifier.")) return;  // a head is trained whole
  for (const Part& part : parts) model_.projections.push_back(part.name);
  if (!model_.lora) return;
  Adapters& adapters = projection.adapters;
  adapters.rank = model_.lora->rank;
  adapters.scale = model_.lora->scale();
  const double start = 1 / std::sqrt(static_cast<double>(projection.in));
  std::vector<std::string> names;
  int64_t first = 0;
  for (const Part& part : parts) {
    if (adapts(*model_.lora, part.name)) {
      const ParamId a = add(part.name + kLoraA, {adapters.rank, projection.in},
                            {Init::Kind::uniform, start}, /*joined=*/!names.empty());
      if (names.empty()) adapters.a = a;
      names.push_back(part.name);
      adapters.parts.push_back({-1, first, part.out});
    }
    first += part.out;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    adapters.parts[i].b =
        add(names[i] + kLoraB, {adapters.parts[i].out, adapters.rank}, {Init::Kind::constant, 0});
  }
}

Norm Parameters::norm(const std::string& name, int64_t width, double epsilon, bool bias,
                      double offset) {
  Norm norm;
  norm.offset = offset;
  norm.width = width;
  norm.epsilon = epsilon;
  norm.weight = add(name + ".weight", {width}, {Init::Kind::constant, 1 - offset});
  if (bias) norm.bias = add(name + ".bias", {width}, {Init::Kind::constant, 0});
  return norm;
}

void choose_token(const LanguageConfig& config, TransformerLayers& last_block) {
  if (config.task != Task::sequence_classification) return;
  last_block.goes_on = GoesOn::last;
  last_block.padding_id = config.padding_id;
}

void add_head(const LanguageConfig& config, const LanguageModelOptions& options, const Norm& norm,
              ParamId table, Parameters& parameters, Model& model) {
  if (config.task == Task::sequence_classification) {
    const ParamId score = parameters.table("score.weight", config.labels, config.hidden);
    model.loss =
        std::make_unique<Classifier>(Classifier::Layers{norm, score, config.labels, config.hidden});
    return;
  }
  const ParamId head =
      config.tied ? table : parameters.table("lm_head.weight", config.vocabulary, config.hidden);
  model.loss = std::make_unique<LmHead>(LmHead::Layers{norm, head, config.vocabulary, config.hidden,
                                                       options.tokens, options.logit_piece_bytes});
}

Model language_model(const LanguageConfig& config, const LanguageModelOptions& options) {
  if (options.tokens < 1 || options.tokens > config.positions)
    field_error("seq_length", "{}: this model has positions for 1 to {} tokens{}", options.tokens,
                config.positions, config.rope_theta > 0 ? "; `beyond_positions` allows more" : "");
  const LanguageFamily& family = family_of(config);
  if (family.only_classifies && config.task != Task::sequence_classification)
    field_error("task", "{}: a {} model is supported for sequence-classification only",
                name_of(config.task), family.model_type);
  Model model;
  model.name = family.model_type;
  model.input = {{options.tokens}, at::kLong, config.vocabulary};
  const bool classifies = config.task == Task::sequence_classification;
  model.target = {classifies ? std::vector<int64_t>{} : std::vector{options.tokens}, at::kLong,
                  classifies ? config.labels : config.vocabulary};
  model.lora = options.lora;
  family.build(config, options, model);
  return model;
}

LanguageConfig sized_config(Family family, const ModelSize& size) {
  LanguageConfig config;
  config.family = family;
  config.hidden = size.hidden;
  config.layers = size.layers;
  config.heads = size.heads;
  config.kv_heads = size.kv_heads;
  config.head_dim = size.head_dim;
  config.feed = size.feed;
  return config;
}

LanguageConfig tiny_config(LanguageConfig config, int64_t positions) {
  config.vocabulary = 264;
  config.positions = positions;
  return config;
}

std::optional<LanguageConfig> preset_config(const std::string& name) {
  for (const LanguageFamily* family : language_families()) {
    for (const LanguagePreset& preset : family->presets) {
      if (canonical(preset.name) == canonical(name)) return preset.config;
    }
  }
  return std::nullopt;
}

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> found = [] {
    std::vector<std::string> list;
    // Tiny ones last: whoever reads the list looks for real models first.
    for (const bool tiny : {false, true}) {
      for (const LanguageFamily* family : language_families()) {
        for (const LanguagePreset& preset : family->presets) {
          if ((preset.name.find("tiny") != std::string::npos) == tiny) list.push_back(preset.name);
        }
      }
    }
    return list;
  }();
  return found;
}

std::optional<std::string> preset_of_hub_id(const std::string& id) {
  if (id.find('/') == std::string::npos) return {};
  const auto plain = [](std::string name) {
    name = canonical(name);
    for (const char* const suffix : {"-instruct", "-chat"}) {
      if (name.ends_with(suffix)) name.erase(name.size() - std::string(suffix).size());
    }
    std::erase(name, '-');
    return name;
  };
  const std::string wanted = plain(id.substr(id.find_last_of('/') + 1));
  for (const std::string& name : preset_names()) {
    if (plain(name) == wanted) return name;
  }
  return {};
}

}  // namespace veil
