#include "run/inference.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "data/batches.h"
#include "models/text_generator.h"
#include "run/text_data.h"
#include "train/feed.h"

namespace veil {
namespace {

int64_t counted_samples(const data::Samples& samples, int64_t most) {
  return most > 0 ? std::min(most, samples.count()) : samples.count();
}

std::vector<int64_t> sample_range(int64_t first, int64_t end) {
  std::vector<int64_t> chosen(static_cast<size_t>(end - first));
  std::iota(chosen.begin(), chosen.end(), first);
  return chosen;
}

}  // namespace

InferenceModel load_inference_model(const RunConfig& config, Device device) {
  ModelSource source = model_source(config);
  if (!source.is_language_model())
    field_error("model", "{}: a language model is needed here", config.model.name);
  require_weights(source, /*trains=*/false);
  Model model = make_model(config, source, 1);
  InitialWeights weights = initial_weights(source, model);
  const DType compute = dtype_of(config.step.compute);
  if (!weights.random.empty())
    field_error("model", "{}: {} has no weights in the folder; train the model first",
                config.model.name, weights.random.front());
  std::optional<uint64_t> seed;
  if (source.from_scratch) seed = static_cast<uint64_t>(config.seed);
  auto params = std::make_unique<WholeParams>(model.params, compute, device, weights.fill, seed);
  return {std::move(source), std::move(model), std::move(weights),
          std::move(params), compute,          device};
}

std::unique_ptr<data::Tokenizer> inference_tokenizer(const std::string& given,
                                                     const ModelSource& source) {
  const std::string name = tokenizer_name(given, source);
  if (name.empty())
    field_error("tokenizer",
                "is missing: {} has no tokenizer.json and a vocabulary of {}; pass `tokenizer` "
                "PATH",
                source.name, source.config->vocabulary);
  return data::load_tokenizer(name);
}

ModelQuality evaluate_samples(const InferenceModel& model, const data::Samples& samples,
                              int64_t batch, int64_t most, const OnSamples& progress) {
  ModelQuality found;
  const int64_t count = counted_samples(samples, most);
  const bool labelled = samples.options().kind == data::SampleKind::labelled;
  double loss = 0;
  int64_t correct = 0;
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t end = std::min(count, first + batch);
    const Batch host = batch_tensors(data::make_batch(samples, sample_range(first, end)));
    const Batch here = host.each([&](const Tensor& tensor) { return tensor.to(model.device); });
    Flow flow{here.inputs};
    for (const auto& block : model.model.blocks) {
      Tape tape;  // dropped at once
      flow = block->forward(*model.params, flow, tape);
    }
    const Evaluation result = model.model.loss->evaluate(*model.params, flow, here);
    const Tensor losses = result.losses.cpu();
    for (int64_t i = 0; i < end - first; ++i) {
      // A sample's loss is the mean over its own targets.
      const int64_t targets =
          labelled ? 1 : host.targets[i].ne(data::kIgnoredTarget).sum().item<int64_t>();
      found.tokens += targets;
      found.each.push_back({targets > 0 ? losses.data_ptr<double>()[i] : 0, targets});
      if (targets > 0) loss += losses.data_ptr<double>()[i] * static_cast<double>(targets);
    }
    if (result.correct.defined()) correct += result.correct.sum().item<int64_t>();
    found.samples = end;
    if (progress) progress(end, count);
  }
  found.loss = found.tokens > 0 ? loss / static_cast<double>(found.tokens) : 0;
  if (labelled) {
    found.accuracy = static_cast<double>(correct) / static_cast<double>(found.samples);
  } else {
    found.perplexity = std::exp(found.loss);
  }
  return found;
}

double exact_matches(const InferenceModel& model, const data::Samples& samples, int64_t batch,
                     int64_t most, const OnSamples& progress) {
  const int64_t count = counted_samples(samples, most), length = samples.length();
  TextGenerator generator(model.model, *model.params, model.source.config->positions, model.compute,
                          model.device);
  std::vector<int64_t> inputs(static_cast<size_t>(length)), targets(inputs.size());
  int64_t matched = 0, compared = 0;
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t end = std::min(count, first + batch);
    std::vector<std::vector<int32_t>> prompts, wanted;
    GenerateOptions options;
    options.rule.temperature = 0;
    options.new_tokens = 1;
    for (int64_t s = first; s < end; ++s) {
      samples.fill(s, inputs.data(), targets.data());
      size_t begin = 0;
      while (begin < targets.size() && targets[begin] == data::kIgnoredTarget) ++begin;
      if (begin == targets.size()) continue;  // cut off before its completion begins
      // Position t predicts targets[t], so the prompt reaches up to and with `begin`.
      std::vector<int32_t> prompt(inputs.begin(), inputs.begin() + static_cast<int64_t>(begin) + 1);
      std::vector<int32_t> completion;
      for (size_t t = begin; t < targets.size() && targets[t] != data::kIgnoredTarget; ++t)
        completion.push_back(static_cast<int32_t>(targets[t]));
      options.new_tokens = std::max<int64_t>(options.new_tokens, std::ssize(completion));
      prompts.push_back(std::move(prompt));
      wanted.push_back(std::move(completion));
    }
    if (!prompts.empty()) {
      const auto texts = generator.run(prompts, options);
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto& made = texts[i].tokens;
        matched += made.size() >= wanted[i].size() &&
                   std::equal(wanted[i].begin(), wanted[i].end(), made.begin());
      }
      compared += std::ssize(texts);
    }
    if (progress) progress(end, count);
  }
  if (compared == 0)
    user_error("no sample has a completion within `seq_length` {}", samples.length());
  return static_cast<double>(matched) / static_cast<double>(compared);
}

}  // namespace veil
