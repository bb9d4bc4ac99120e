#include "models/lora.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/shape.h"

namespace veil {
namespace {

bool lora_target_is(const std::string& target, const std::string& module) {
  if (target == "all") return true;
  if (target == "attention")
    return module.find("attn") != std::string::npos ||
           module.find("attention") != std::string::npos;
  if (target.find('*') != std::string::npos) return matches_pattern(module, target);
  return module == target || module.ends_with("." + target);
}

}  // namespace

double LoraSettings::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

bool adapts(const LoraSettings& lora, const std::string& module) {
  return std::any_of(lora.targets.begin(), lora.targets.end(),
                     [&](const std::string& target) { return lora_target_is(target, module); });
}

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB);
}

std::vector<std::string> adapted_modules(const Model& model) {
  std::vector<std::string> modules;
  for (const ParamShape& param : model.params) {
    if (param.name.ends_with(kLoraA))
      modules.push_back(param.name.substr(0, param.name.size() - std::string(kLoraA).size()));
  }
  return modules;
}

void train_adapters(Model& model, const std::vector<std::string>& also) {
  VEIL_CHECK(model.lora, "{} was built without adapters", model.name);
  const std::vector<std::string> modules = adapted_modules(model);
  for (const std::string& target : model.lora->targets) {
    const bool found = std::any_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return lora_target_is(target, module);
    });
    if (found) continue;
    std::vector<std::string> names;  // "q_proj": what a projection is called in its layer
    for (const std::string& module : model.projections) {
      const std::string name = module.substr(module.find_last_of('.') + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    field_error("lora_targets",
                "{}: no projection of {} is called so; allowed are all, attention, "
                "patterns of names, and {}",
                target, model.name, join(names, ", "));
  }
  std::vector<std::string> trained = {std::string("*") + kLoraA, std::string("*") + kLoraB};
  trained.insert(trained.end(), also.begin(), also.end());
  freeze(model, trained, /*others=*/true, "train_also");
}

}  // namespace veil
