// A language model, whole on one device, to generate with or to evaluate.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/samples.h"
#include "data/tokenizer.h"
#include "models/whole_params.h"
#include "run/config.h"

namespace veil {

struct InferenceModel {
  ModelSource source;
  Model model;
  InitialWeights weights;
  std::unique_ptr<WholeParams> params;
  DType compute;
  Device device;
};

// config.model and config.step.compute say which. UserError if it is no language model or has no
// weights.
InferenceModel load_inference_model(const RunConfig& config, Device device);

// `given`, else the model's own, else bytes for a vocabulary that was made for them; UserError
// otherwise.
std::unique_ptr<data::Tokenizer> inference_tokenizer(const std::string& given,
                                                     const ModelSource& source);

// What a model does on samples. Not private: it looks at the data.
struct ModelQuality {
  int64_t samples = 0, tokens = 0;  // tokens that are predicted
  double loss = 0;                  // nats per predicted token; of a classifier per sample
  std::optional<double> perplexity, accuracy;
  std::optional<double> exact_match;  // of completions
  struct Sample {
    double loss;  // per predicted token
    int64_t tokens;
  };
  std::vector<Sample> each;  // in the order of the data
};
using OnSamples = std::function<void(int64_t done, int64_t of)>;
// The first `most` samples (0: all), `batch` at a time.
ModelQuality evaluate_samples(const InferenceModel& model, const data::Samples& samples,
                              int64_t batch, int64_t most, const OnSamples& progress = {});
// The part of the samples whose trained tokens are exactly what the model makes of the tokens
// before them, the most likely one each time. UserError if samples have no tokens before them.
double exact_matches(const InferenceModel& model, const data::Samples& samples, int64_t batch,
                     int64_t most, const OnSamples& progress = {});

}  // namespace veil
