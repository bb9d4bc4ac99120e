// The task of an adapter, as PEFT's adapter_config.json has it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "models/config.h"

namespace veil {

const char* peft_task(Task task);  // SEQ_CLS, CAUSAL_LM
// Of an adapter_config.json; nothing if it says none, or one that Veil does not have.
std::optional<Task> adapter_task(const nlohmann::ordered_json& config);

}  // namespace veil
