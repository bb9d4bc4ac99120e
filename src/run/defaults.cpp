#include "run/defaults.h"

#include <algorithm>

#include "base/text.h"

namespace veil {
namespace {

// The parts of a condition, each with the words for true and for false.
struct ConditionPart {
  std::optional<bool> When::*field;
  const char* yes;
  const char* no;
};
constexpr ConditionPart kConditionParts[] = {
    {&When::is_private, "private", "not private"},
    {&When::from_scratch, "from scratch", "pretrained"},
    {&When::language, "language model", "no language model"},
    {&When::diffusion, "diffusion", "no diffusion model"},
    {&When::linear, "linear stack", "other models"},
    {&When::adapters, "adapters", "whole model"},
    {&When::sgd, "sgd", "adamw"},
    {&When::on_gpu, "on a GPU", "on a CPU"},
};

}  // namespace

bool When::always() const {
  return std::none_of(
      std::begin(kConditionParts), std::end(kConditionParts),
      [this](const ConditionPart& part) { return (this->*part.field).has_value(); });
}

std::string When::words() const {
  std::vector<std::string> parts;
  for (const ConditionPart& part : kConditionParts) {
    if (const std::optional<bool> value = this->*part.field)
      parts.emplace_back(*value ? part.yes : part.no);
  }
  return join(parts, ", ");
}

bool applies(const When& when, const RunConfig& config, const ModelSource& source) {
  const auto is = [](std::optional<bool> wanted, bool value) {
    return !wanted || *wanted == value;
  };
  const PrivacyConfig& p = config.privacy;
  const bool language = source.config.has_value(), diffusion = source.diffusion.has_value();
  return is(when.is_private, p.is_private() || p.epsilon || p.sigma) &&
         is(when.from_scratch, !source.has_weights()) && is(when.language, language) &&
         is(when.diffusion, diffusion) && is(when.linear, !language && !diffusion) &&
         is(when.adapters, config.model.has_adapters()) &&
         is(when.sgd, config.optimizer.kind != OptimizerKind::adamw) &&
         is(when.on_gpu, runs_on_gpu(config.placement));
}

void use_defaults(RunConfig& config, const ModelSource& source,
                  const std::vector<UsualValue>& table,
                  const std::function<bool(const char* option)>& given) {
  for (const UsualValue& usual : table) {
    if (given(usual.option) || std::any_of(usual.unless.begin(), usual.unless.end(), given))
      continue;
    if (applies(usual.when, config, source)) usual.set(config);
  }
}

// The linear stack has the sizes and the optimizer of the FSDP tutorial; a model has those of the
// published measurements of private training.
const std::vector<UsualValue>& measuring_defaults() {
  static const std::vector<UsualValue> table = {
      {"batch-size", {}, [](RunConfig& c) { c.step.batch_size = 8192; }},
      {"batch-size", {.linear = false}, [](RunConfig& c) { c.step.batch_size = 2; }},
      {"optimizer", {}, [](RunConfig& c) { c.optimizer.kind = OptimizerKind::sgd; }},
      {"optimizer",
       {.linear = false},
       [](RunConfig& c) { c.optimizer.kind = OptimizerKind::adamw; }},
      {"learning-rate", {}, [](RunConfig& c) { c.optimizer.learning_rate = 0.01; }},
      {"learning-rate", {.linear = false}, [](RunConfig& c) { c.optimizer.learning_rate = 1e-5; }},
      {"weight-decay", {}, [](RunConfig& c) { c.optimizer.weight_decay = 0; }},
      {"weight-decay",
       {.language = true, .sgd = false},
       [](RunConfig& c) { c.optimizer.weight_decay = 0.1; }},
      {"compute", {}, [](RunConfig& c) { c.step.compute = Precision::fp32; }},
      {"compute",
       {.linear = false, .on_gpu = true},
       [](RunConfig& c) { c.step.compute = Precision::bf16; }},
  };
  return table;
}

// Private AdamW takes steps of the size of the learning rate whatever the clipped gradients are, and
// noise calls for fewer and larger steps on large batches. Private SGD moves by at most
// learning_rate * C a step, so it needs a far larger one.
const std::vector<UsualValue>& training_defaults() {
  static const std::vector<UsualValue> table = {
      {"batch-size", {}, [](RunConfig& c) { c.step.batch_size = 8; }},
      {"total-batch-size",
       {.is_private = true},
       [](RunConfig& c) { c.step.total_batch_size = 256; },
       {"batch-size", "accumulation"}},
      {"epochs", {}, [](RunConfig& c) { c.training.epochs = kUsualEpochs; }, {"steps"}},
      {"optimizer", {}, [](RunConfig& c) { c.optimizer.kind = OptimizerKind::adamw; }},
      {"learning-rate", {}, [](RunConfig& c) { c.optimizer.learning_rate = 5e-5; }},
      {"learning-rate",
       {.from_scratch = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 1e-3; }},
      {"learning-rate",
       {.diffusion = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 1e-4; }},
      {"learning-rate",
       {.is_private = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 5e-4; }},
      {"learning-rate",
       {.is_private = true, .from_scratch = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 2e-3; }},
      {"learning-rate", {.adapters = true}, [](RunConfig& c) { c.optimizer.learning_rate = 2e-4; }},
      {"learning-rate",
       {.is_private = true, .adapters = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 1e-3; }},
      {"learning-rate", {.sgd = true}, [](RunConfig& c) { c.optimizer.learning_rate = 0.01; }},
      {"learning-rate",
       {.is_private = true, .sgd = true},
       [](RunConfig& c) { c.optimizer.learning_rate = 0.5; }},
      {"weight-decay", {}, [](RunConfig& c) { c.optimizer.weight_decay = 0.1; }},
      {"weight-decay", {.adapters = true}, [](RunConfig& c) { c.optimizer.weight_decay = 0; }},
      {"weight-decay", {.diffusion = true}, [](RunConfig& c) { c.optimizer.weight_decay = 0; }},
      {"weight-decay", {.sgd = true}, [](RunConfig& c) { c.optimizer.weight_decay = 0; }},
      {"schedule", {}, [](RunConfig& c) { c.optimizer.schedule = LearningRateKind::cosine; }},
      {"schedule",
       {.diffusion = true},
       [](RunConfig& c) { c.optimizer.schedule = LearningRateKind::constant; }},
      {"beta2", {}, [](RunConfig& c) { c.optimizer.beta2 = 0.95; }},
      {"beta2", {.diffusion = true}, [](RunConfig& c) { c.optimizer.beta2 = 0.999; }},
      {"ema", {}, [](RunConfig& c) { c.optimizer.average = 0; }},
      {"ema", {.diffusion = true}, [](RunConfig& c) { c.optimizer.average = 0.999; }},
      {"data", {.diffusion = true}, [](RunConfig& c) { c.data.path = kShapes; }},
      {"compute", {}, [](RunConfig& c) { c.step.compute = Precision::fp32; }},
      {"compute", {.on_gpu = true}, [](RunConfig& c) { c.step.compute = Precision::bf16; }},
  };
  return table;
}

}  // namespace veil
