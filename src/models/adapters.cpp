#include "models/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace veil {

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
      return is_target(target, module);
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
