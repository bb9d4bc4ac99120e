// Defaults that depend on the run: on its model, its device, its optimizer, and on whether it is
// private. A command has one table of them. What runs is resolved from the table and the help is
// printed from it, so the two cannot differ.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/config.h"

namespace veil {

// When a default applies: if every field that is set holds. None set: always.
struct When {
  std::optional<bool> is_private = {};
  std::optional<bool> from_scratch = {};  // the model has no weights to start from
  std::optional<bool> language = {}, diffusion = {};
  std::optional<bool> linear = {};    // the linear stack, which has neither
  std::optional<bool> adapters = {};  // are trained instead of the model
  std::optional<bool> sgd = {};       // with or without momentum
  std::optional<bool> on_gpu = {};

  bool always() const;
  std::string words() const;  // "private, from scratch"
};

// One default. Of several that apply to an option, the last one in the table holds.
struct UsualValue {
  const char* option;  // "learning-rate"
  When when;
  void (*set)(RunConfig&);
  std::vector<const char*> unless = {};  // options that take its place if they are given
};

// Of commands that measure or plan a step.
const std::vector<UsualValue>& measuring_defaults();
// Of training.
const std::vector<UsualValue>& training_defaults();
inline constexpr double kUsualEpochs = 3;

bool applies(const When& when, const RunConfig& config, const ModelSource& source);
// Sets what is open: the options for which `given` answers false.
void use_defaults(RunConfig& config, const ModelSource& source,
                  const std::vector<UsualValue>& table,
                  const std::function<bool(const char* option)>& given);

}  // namespace veil
