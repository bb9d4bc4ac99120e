// The goldens of adapters: a base model, an adapter as PEFT saves it, and what they are together.
#pragma once

#include "models/adapters.h"
#include "models/peft.h"
#include "models/test_language_golden.h"

namespace veil {

struct LoraGolden {
  // Of base and adapter together; gradients and norms by the names of the adapter's parameters in
  // the model, with zeros for those of the base, which are frozen.
  LanguageGolden golden;
  PeftAdapter adapter;
  Tensor merged_logits;
  Model model() const;  // with the adapter
  InitialWeights weights(const Model& model) const;
};
// Every folder under lora/.
std::vector<LoraGolden> lora_goldens();

}  // namespace veil
