#include "models/lora.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace veil {
bool is_target(const std::string& target, const std::string& module) {
  if (target == "all") return true;
  if (target == "attention")
    return module.find("attn") != std::string::npos ||
           module.find("attention") != std::string::npos;
  if (target.find('*') != std::string::npos) return matches_pattern(module, target);
  return module == target || module.ends_with("." + target);
}

double LoraSettings::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

bool adapts(const LoraSettings& lora, const std::string& module) {
  return std::any_of(lora.targets.begin(), lora.targets.end(),
                     [&](const std::string& target) { return is_target(target, module); });
}

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB);
}

}  // namespace veil
