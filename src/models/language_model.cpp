#include "models/language_model.h"

#include "base/error.h"
#include "models/parameters.h"
#include "nn/classifier.h"
#include "nn/lm_head.h"

namespace veil {

ParamId Parameters::add(const std::string& name, std::vector<int64_t> dims, Init init, bool joined) {
  model_.params.push_back({name, std::move(dims), init, joined});
  return static_cast<ParamId>(model_.params.size()) - 1;
}

Projection Parameters::projection(const std::vector<Part>& parts, int64_t in, bool bias, bool in_out) {
  VEIL_CHECK(parts.size() == 1 || !in_out, "maps stored [in, out] do not join");
  Projection projection;
  projection.in = in;
  projection.in_out = in_out;
  projection.joined = static_cast<int>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int64_t> dims = in_out ? std::vector{in, parts[i].out} : std::vector{parts[i].out, in};
    const ParamId id = add(parts[i].name + ".weight", dims, {Init::Kind::normal, deviation_}, /*joined=*/i > 0);
    if (i == 0) projection.weight = id;
    projection.out += parts[i].out;
  }
  for (size_t i = 0; bias && i < parts.size(); ++i) {
    const ParamId id = add(parts[i].name + ".bias", {parts[i].out}, {Init::Kind::constant, 0}, /*joined=*/i > 0);
    if (i == 0) projection.bias = id;
  }
  return projection;
}

Norm Parameters::norm(const std::string& name, int64_t width, double epsilon, bool bias) {
  Norm norm;
  norm.width = width;
  norm.epsilon = epsilon;
  norm.weight = add(name + ".weight", {width}, {Init::Kind::constant, 1});
  if (bias) norm.bias = add(name + ".bias", {width}, {Init::Kind::constant, 0});
  return norm;
}

void add_head(const LanguageConfig& config, const LanguageModelOptions& options, const Norm& norm, ParamId table,
              Parameters& parameters, Model& model) {
  if (config.task == Task::sequence_classification) {
    const ParamId score = parameters.table("score.weight", config.labels, config.hidden);
    model.loss = std::make_unique<Classifier>(
        Classifier::Layers{norm, score, config.labels, config.hidden, options.tokens, config.padding_id});
    return;
  }
  const ParamId head = config.tied ? table : parameters.table("lm_head.weight", config.vocabulary, config.hidden);
  model.loss = std::make_unique<LmHead>(
      LmHead::Layers{norm, head, config.vocabulary, config.hidden, options.tokens, options.logit_piece_bytes});
}

Model language_model(const LanguageConfig& config, const LanguageModelOptions& options) {
  if (options.tokens < 1 || options.tokens > config.positions)
    user_error("sequence length {}: this model has positions for 1 to {} tokens", options.tokens, config.positions);
  Model model;
  model.name = name_of(config.family);
  model.input = {{options.tokens}, at::kLong, config.vocabulary};
  const bool classifies = config.task == Task::sequence_classification;
  model.target = {classifies ? std::vector<int64_t>{} : std::vector{options.tokens}, at::kLong,
                  classifies ? config.labels : config.vocabulary};
  if (config.family == Family::gpt2) {
    build_gpt2(config, options, model);
  } else {
    build_llama(config, options, model);
  }
  return model;
}

}  // namespace veil
