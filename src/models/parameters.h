// Lists a model's parameters while its blocks are put together. Used by the models' own files.
#pragma once

#include "models/language_model.h"
#include "nn/norm.h"
#include "nn/projection.h"

namespace veil {

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
  Norm norm(const std::string& name, int64_t width, double epsilon, bool bias = false);

 private:
  ParamId add(const std::string& name, std::vector<int64_t> dims, Init init, bool joined = false);
  Model& model_;
  double deviation_;
};

// The two families; each fills blocks and loss of a model whose data and name are set.
void build_llama(const LanguageConfig& config, const LanguageModelOptions& options, Model& model);
void build_gpt2(const LanguageConfig& config, const LanguageModelOptions& options, Model& model);
// Final norm and head of either task; `table` is the embedding's, for tied weights.
void add_head(const LanguageConfig& config, const LanguageModelOptions& options, const Norm& norm, ParamId table,
              Parameters& parameters, Model& model);

}  // namespace veil
