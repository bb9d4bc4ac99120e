// Adapters on disk, in the folder layout of PEFT (Hugging Face's adapter library):
// adapter_config.json and adapter_model.safetensors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/load.h"
#include "models/shape.h"

namespace veil {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model";  // without .safetensors

struct PeftAdapter {
  std::string folder;
  LoraSettings lora;              // targets are whole names, as the weights have them
  std::vector<std::string> also;  // parameters that are stored whole: of modules_to_save
  std::vector<std::string> notices;
  nlohmann::ordered_json config;  // as it was read
};

// UserError in one line for a missing or damaged file, for adapters that are not LoRA, and for
// every option of PEFT that Veil does not have (DoRA, biases, ranks that differ, ...), by its name.
PeftAdapter read_adapter(const std::string& folder);

// A line if the adapter names another base than the model that it is put on; "" if it names none, or
// one whose name the model's name or folder has, whatever its owner, punctuation and case.
std::string other_base_notice(const PeftAdapter& adapter, const std::string& model_name,
                              const std::string& model_folder);

// The base's weights, and those of the adapter in their place or in addition. UserError if a
// tensor of the adapter does not fit the model.
InitialWeights with_adapter(InitialWeights base, const PeftAdapter& adapter,
                            const std::vector<ParamShape>& params);

// adapter_config.json of a model's adapters; `before`: as they were read, if they were.
// `base_model` is the name of the model that they belong to.
nlohmann::ordered_json adapter_config(const Model& model, const std::string& base_model,
                                      bool classifies, const nlohmann::ordered_json& before = {});
// The parameters that belong into adapter_model.safetensors, and a parameter's name there.
std::vector<ParamId> adapter_params(const Model& model);
std::string adapter_name(const std::string& parameter);

// W + s B A if the parameter has an adapter; else the parameter. `whole` gives parameters on
// CPU.
Tensor merged_parameter(const Model& model, ParamId id,
                        const std::function<Tensor(ParamId)>& whole);
// The parameters of the model without adapters.
std::vector<ParamId> base_params(const Model& model);

}  // namespace veil
